"""Whom to compare with; apart from sides.py, so that the command line's help needs no Spark."""

from __future__ import annotations

from enum import StrEnum


class Against(StrEnum):
    """Spark's own connector, the recipe that people use today, two clients without Spark."""

    BUILTIN = "builtin"
    RECIPE = "recipe"
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
