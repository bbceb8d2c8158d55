"""The demo's exit code is its verdict."""

import typer
from typer.testing import CliRunner

from spark_kafka_eos.tools.cli.demo import demo


def invoke(*arguments: str, holds: bool) -> tuple[int, dict[str, object]]:
    called: dict[str, object] = {}

    def run(**settings: object) -> bool:
        called.update(settings)
        return holds

    app = typer.Typer()
    app.command()(demo)
    return CliRunner().invoke(app, arguments, obj=run).exit_code, called


def test_figures_that_all_hold_end_well() -> None:
    assert invoke(holds=True)[0] == 0


def test_a_figure_that_is_off_is_a_failure() -> None:
    assert invoke(holds=False)[0] == 1


def test_the_options_reach_the_demo() -> None:
    chosen = ("--fast", "--cluster", "--with-table", "--kafka-version", "3.9.1", "--append-mode", "executors")
    _, called = invoke(*chosen, holds=True)
    assert (called["fast"], called["cluster"], called["with_table"]) == (True, True, True)
    assert (called["kafka_version"], called["append_mode"]) == ("3.9.1", "executors")


def test_on_a_cluster_the_executors_append() -> None:
    assert invoke("--cluster", holds=True)[1]["append_mode"] == "executors"
    assert invoke(holds=True)[1]["append_mode"] == "auto"


def test_an_unknown_append_mode_is_refused() -> None:
    code, called = invoke("--append-mode", "magic", holds=True)
    assert (code, called) == (2, {})


def test_executors_that_append_nothing_are_not_killed_for_show() -> None:
    code, called = invoke("--cluster", "--append-mode", "driver", holds=True)
    assert (code, called) == (2, {})
