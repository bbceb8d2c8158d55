"""`kafka-eos trace`: the last batches as a table, JSON, a picture and a page, from the files of `traceDir`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.trace import Phase, Request, Trace, trigger_phases
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.tools.cli.timeline import html, svg
from spark_kafka_eos.tools.cli.trace import trace

BUSY = "CONCURRENT_TRANSACTIONS"


def request(api, start, error="", **given):
    return Request(api=api, node="broker:9092", start=start, milliseconds=3.0, error=error, **given)


def report(batch_id=7, requests=None, **given):
    sent = (
        request("InitProducerId", 1.0, BUSY),
        request("InitProducerId", 9.0, BUSY),
        request("InitProducerId", 20.0),
        request("Produce", 30.0, about="<orders>-0 +3", task=2),
        request("EndTxn", 40.0, "no response", about="commit"),
    )
    timeline = Trace(
        began_ms=1_000.0,
        milliseconds=50.0,
        phases=(Phase(name="begin", start=0.5, milliseconds=23.0),),
        requests=requests or sent,
    )
    usual: dict[str, Any] = {
        "query_id": "q",
        "outcome": "committed",
        "producer_id": 1,
        "epoch": 3,
        "append_mode": "driver",
    }
    more = {"append_mode": "driver", "batch_id": batch_id, "records": 1000, "trace": timeline}
    return CommitReport(**usual | more | given)


@pytest.fixture
def run(tmp_path):
    """`run(*arguments)`: the command on the folder with three batches; what it prints."""
    for batch_id in (5, 6, 7):
        trace_file.append(tmp_path, "orders", report(batch_id).to_json())
    trace_file.append_trigger(tmp_path, "q", 7, "1970-01-01T00:00:00.900Z", {"addBatch": 120, "walCommit": 5})
    app = typer.Typer()
    app.command()(trace)

    def run(*arguments):
        result = CliRunner().invoke(app, [*map(str, arguments), "--dir", str(tmp_path)], env={"COLUMNS": "80"})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.stdout

    return run


def test_the_table_has_every_request_and_its_retries_within_80_columns(run):
    shown = run("orders")
    assert max(map(len, shown.splitlines())) <= 80
    assert "Batch 7 committed, 1000 records, 50 ms" in shown
    words = " ".join(shown.split())
    assert "1.0 22.0 InitProducerId broker:9092 2 ×" in words
    assert "failed: no" in words
    assert "-100.0 5.0 Spark: walCommit" in words
    assert "-95.0 120.0 Spark: addBatch" in words


def test_the_last_batches_or_one_of_them_are_shown(run):
    assert re.findall(r"Batch (\d)", run("orders")) == ["7"]
    assert re.findall(r"Batch (\d)", run("orders", "--last", 2)) == ["6", "7"]
    assert re.findall(r"Batch (\d)", run("orders", "--batch", 5)) == ["5"]


def test_json_is_the_report_as_it_was(run):
    assert CommitReport.from_json(json.loads(run("orders", "--json"))) == report()


def test_a_line_of_another_release_is_left_out(run, tmp_path):
    trace_file.append(tmp_path, "orders", {"batch_id": 8, "outcome": "committed"})
    assert re.findall(r"Batch (\d)", run("orders", "--last", 2)) == ["6", "7"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["others"], "has those of orders"), (["orders", "--batch", "9"], "has the batches 5 to 7")],
)
def test_what_is_not_there_is_an_error_that_says_what_is(run, arguments, said):
    with pytest.raises(ToolFailed, match=said):
        run(*arguments)


def test_a_picture_is_well_formed_shows_each_attempt_and_escapes_names(run, tmp_path):
    run("orders", "--svg", tmp_path / "t.svg")
    drawn = ET.parse(tmp_path / "t.svg").getroot()
    bars = [bar.get("class") for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    assert {kind: bars.count(kind) for kind in ("spark", "phase", "rpc", "failed")} == {
        "spark": 2, "phase": 1, "rpc": 2, "failed": 3,
    }  # fmt: skip
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert f"{BUSY} × 2" in texts
    assert "task 2: Produce <orders>-0 +3" in texts


def test_a_page_loads_nothing_from_elsewhere(run, tmp_path):
    run("orders", "--last", 3, "--html", tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert page.count("<svg") == 3
    assert set(re.findall(r"https?://[^'\" ]+", page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in page
    assert "<script" not in html("<script>", [])


def test_of_very_many_requests_the_retried_and_the_longest_are_drawn():
    many = tuple(request("Produce", float(n), about=f"t-{n}") for n in range(200))
    drawn = svg(report(requests=(*many, request("EndTxn", 300.0, "no response"))))
    assert "and 121 others" in drawn
    assert "EndTxn" in drawn


def test_the_phases_of_a_trigger_follow_each_other_and_the_trigger_is_the_first():
    durations = {"addBatch": 100, "latestOffset": 7, "triggerExecution": 130, "unheard of": 1}
    phases = trigger_phases(900.0, durations, report().trace)
    assert [(phase.name, phase.start, phase.milliseconds) for phase in phases] == [
        ("triggerExecution", -100, 130),
        ("latestOffset", -100, 7),
        ("addBatch", -93, 100),
    ]


def test_a_name_with_control_characters_is_text_in_a_picture_that_can_be_read():
    evil = "id\x1b[2K\x07\u202e</text><script>alert(1)</script>"
    drawn = svg(report(requests=(request(evil, 1.0, evil, about=evil),)))
    assert "script" not in {element.tag.rpartition("}")[2] for element in ET.fromstring(drawn).iter()}
    page = html(f"Last batches of {evil}", [drawn])
    assert "\x1b" not in page and "\u202e" not in page and "<script" not in page
    assert "id�[2K��&lt;/text&gt;" in page
