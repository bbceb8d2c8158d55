"""Hypothesis without its deadline: how long an example takes shows how busy the machine is, not a fault."""

from hypothesis import settings

settings.register_profile("without deadline", deadline=None)  # else as the profile in force: `ci` where CI is set
settings.load_profile("without deadline")
