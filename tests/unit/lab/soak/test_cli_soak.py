"""The soak's exit code is its verdict, and its options reach it."""

from pathlib import Path

from typer.testing import CliRunner

from lab.commands.chaos import chaos
from lab.soak.run import Settings


def invoke(*arguments, holds=True):
    """The exit code, and the settings that the soak was run with."""
    called = []

    def run(settings, _console):
        called.append(settings)
        return holds

    return CliRunner().invoke(chaos, ["soak", *arguments], obj=run).exit_code, called


def test_a_soak_that_holds_ends_well_and_one_that_does_not_is_a_failure():
    assert invoke(holds=True)[0] == 0
    assert invoke(holds=False)[0] == 1


def test_the_options_reach_the_soak(tmp_path):
    given = ("--minutes", "0.5", "--seed", "7", "--rate", "100", "--brokers", "1", "--kafka-version", "3.9.1", "--keep")
    _, [settings] = invoke(*given, "--output", str(tmp_path))
    assert settings == Settings(
        minutes=0.5, seed=7, rate=100, brokers=1, kafka_version="3.9.1", output=tmp_path, keep=True
    )
    assert settings.seconds == 30


def test_by_default_it_is_five_minutes_on_three_brokers_with_any_seed():
    settings = [settings for _ in range(5) for settings in invoke()[1]]
    assert {(one.minutes, one.brokers, one.output) for one in settings} == {(5.0, 3, Path("soak"))}
    assert len({one.seed for one in settings}) > 1


def test_a_duration_of_zero_is_refused():
    assert invoke("--minutes", "0") == (2, [])
