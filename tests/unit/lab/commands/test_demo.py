"""The demo's exit code is its verdict."""

import pytest
import typer
from typer.testing import CliRunner

from spark_kafka_eos.lab.commands import demo as cli_demo


def invoke(monkeypatch: pytest.MonkeyPatch, *arguments: str, holds: bool) -> tuple[int, dict[str, object]]:
    called: dict[str, object] = {}

    def run(**settings: object) -> bool:
        called.update(settings)
        return holds

    monkeypatch.setattr(cli_demo, "run", run)
    app = typer.Typer()
    app.command()(cli_demo.demo)
    return CliRunner().invoke(app, arguments).exit_code, called


def test_figures_that_all_hold_end_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(monkeypatch, holds=True)[0] == 0


def test_a_figure_that_is_off_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(monkeypatch, holds=False)[0] == 1


def test_the_options_reach_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("--fast", "--cluster", "--kafka-version", "3.9.1", "--append-mode", "executors")
    _, called = invoke(monkeypatch, *chosen, holds=True)
    assert (called["fast"], called["cluster"]) == (True, True)
    assert (called["kafka_version"], called["append_mode"]) == ("3.9.1", "executors")


def test_on_a_cluster_the_executors_append(monkeypatch: pytest.MonkeyPatch) -> None:
    assert invoke(monkeypatch, "--cluster", holds=True)[1]["append_mode"] == "executors"
    assert invoke(monkeypatch, holds=True)[1]["append_mode"] == "auto"


def test_an_append_mode_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    code, called = invoke(monkeypatch, "--append-mode", "magic", holds=True)
    assert (code, called) == (2, {})


def test_executors_that_append_nothing_are_not_killed_for_show(monkeypatch: pytest.MonkeyPatch) -> None:
    code, called = invoke(monkeypatch, "--cluster", "--append-mode", "driver", holds=True)
    assert (code, called) == (2, {})
