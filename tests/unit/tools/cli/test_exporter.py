"""`kafka-eos exporter` without a cluster: a wrong command line, and a cluster that does not answer."""

from __future__ import annotations

import re
import urllib.request
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from spark_kafka_eos.errors import BrokerUnreachable, ConfigurationError
from spark_kafka_eos.tools.cli.exporter import exporter
from spark_kafka_eos.tools.operators import cluster_watch
from spark_kafka_eos.tools.operators.cluster_metrics import MISSING, UP, cluster_series
from spark_kafka_eos.tools.operators.cluster_watch import ClusterWatch
from spark_kafka_eos.tools.operators.survey import Survey
from tests.model_kafka import KafkaModel

APP = typer.Typer()
APP.command()(exporter)


def run(*arguments):
    return CliRunner().invoke(APP, arguments)


def test_json_is_for_one_scrape():
    result = run("--bootstrap-servers", "b:1", "--json")
    assert result.exit_code == 2
    assert "--once" in result.output


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [(["--port", "70000", "--bootstrap-servers", "b:1"], "--port"), ([], "--bootstrap-servers")],
)
def test_a_wrong_option_is_named_as_its_flag(arguments, flag):
    error = run(*arguments).exception
    assert isinstance(error, ConfigurationError)
    assert f"{flag} (option" in str(error)


class Unreachable:
    def __init__(self):
        self.errors = [BrokerUnreachable("nobody there"), BrokerUnreachable("nobody there"), BrokerUnreachable("worse")]

    def read(self, **_):
        raise self.errors.pop(0)


def test_a_cluster_that_does_not_answer_is_logged_once_for_each_error_and_shown_as_down(caplog):
    watch = ClusterWatch.__new__(ClusterWatch)
    watch._reader, watch._trouble = Unreachable(), ""  # type: ignore[assignment]
    assert [watch.look_again().values(UP) for _ in range(3)] == [{(): 0}] * 3
    assert [record.getMessage().partition(": ")[2][:12] for record in caplog.records] == [
        "nobody there",
        "worse. Nothi",
    ]


def test_a_ledger_topic_that_does_not_exist_is_counted_and_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(cluster_watch, "survey", lambda *_, **__: Survey(taken_ms=0))
    watch = ClusterWatch(KafkaModel().cluster(), ledger_topics=["orders-leger"])
    for _ in range(2):
        assert watch.look_again().values(MISSING) == {(): 1}
    (warned,) = caplog.messages
    assert warned.startswith("there is no ledger topic orders-leger, or this principal may not describe it")


@pytest.mark.parametrize(("interval", "seconds", "up"), [(15, 119, 1), (15, 121, 0), (60, 239, 1), (60, 241, 0)])
def test_figures_that_a_slow_look_leaves_old_are_not_served_as_those_of_now(caplog, monkeypatch, interval, seconds, up):
    caplog.set_level("INFO")
    now = [0.0]

    def sleep(_):
        now[0] = seconds
        [address] = set(re.findall(r"http://\S+", caplog.text))
        with urllib.request.urlopen(address) as response:
            assert f"kafka_eos_cluster_up {up}.0".encode() in response.read()
        raise KeyboardInterrupt

    monkeypatch.setattr(ClusterWatch, "look_again", lambda _: cluster_series([], Survey(taken_ms=0)))
    monkeypatch.setattr("spark_kafka_eos.tools.cli.exporter.monotonic", lambda: now[0])
    monkeypatch.setattr("spark_kafka_eos.tools.cli.exporter.time", SimpleNamespace(sleep=sleep))
    done = run("--bootstrap-servers", "b:1", "--port", "0", "--interval", str(interval))
    assert not isinstance(done.exception, AssertionError), done.exception


def test_it_looks_at_the_cluster_every_15_seconds_however_often_it_is_scraped(caplog, monkeypatch):
    caplog.set_level("INFO")
    looks: list[int] = []
    pauses: list[float] = []

    def look(_):
        looks.append(len(pauses))
        return cluster_series([], Survey(taken_ms=0))

    def sleep(seconds):
        [address] = set(re.findall(r"http://\S+", caplog.text))
        for _ in range(3):
            with urllib.request.urlopen(address) as response:
                assert b"kafka_eos_cluster_up 1.0" in response.read()
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(ClusterWatch, "look_again", look)
    # Of this module alone: other threads of the process sleep too.
    monkeypatch.setattr("spark_kafka_eos.tools.cli.exporter.time", SimpleNamespace(sleep=sleep))
    run("--bootstrap-servers", "b:1", "--port", "0")
    assert (looks, pauses) == ([0, 1], [15.0, 15.0])
