"""What an option makes of a batch's report: a JSON line in the log, a bounded private file; and no error of theirs."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import stat
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_eos.appending.private_folders import UnsafeFolder
from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.kafka.protocol.trace import Request, Trace
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.observe.observers import observer
from spark_kafka_eos.options import sink_options

OPTIONS = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "orders/1", "topic": "out"}
SENT = Request(api="EndTxn", node="b:1", start=1.0, milliseconds=1.0, error="no response")


def report(**given):
    usual: dict[str, Any] = {"query_id": "q", "batch_id": 7, "outcome": "committed", "producer_id": 1, "epoch": 3}
    timeline = Trace(began_ms=1.0, milliseconds=9.0, requests=(SENT, replace(SENT, start=5.568)))
    return CommitReport(
        **usual | {"append_mode": "driver", "milliseconds": {"begin": 1.23456}, "trace": timeline} | given
    )


@pytest.mark.parametrize(
    ("given", "level"),
    [({}, "INFO"), ({"outcome": "skipped"}, "INFO"), ({"outcome": "refused", "error": "LedgerRefused"}, "ERROR")],
)
def test_a_json_line_has_every_field_of_the_report_but_its_trace(caplog, given, level):
    caplog.set_level(logging.INFO, "spark_kafka_eos")
    observer(sink_options(OPTIONS | {"logFormat": "json"}))(report(**given))
    (record,) = caplog.records
    told = json.loads(record.message)
    assert record.levelname == level
    assert set(told) == {*CommitReport.__dataclass_fields__, "retries", "waited"} - {"trace"}
    assert (told["milliseconds"], told["retries"]) == ({"begin": 1.235}, {"no response": 1})
    assert told["waited"] == {"no response": 4.568}


def test_the_usual_line_names_the_retries_and_is_for_committed_batches(caplog):
    caplog.set_level(logging.INFO, "spark_kafka_eos")
    observe = observer(sink_options(OPTIONS))
    for given in ({}, {"outcome": "skipped"}, {"outcome": "failed", "error": "BrokerUnreachable"}):
        observe(report(**given))
    (record,) = caplog.records
    assert record.message.endswith("mode=driver begin=1ms retries=1 (no response 5ms)")


def test_timelines_are_kept_in_a_private_file_and_come_back(tmp_path):
    folder = tmp_path / "traces"
    observe = observer(sink_options(OPTIONS | {"traceDir": str(folder)}))
    for batch_id in (1, 2):
        observe(report(batch_id=batch_id))
    assert [CommitReport.from_json(line) for line in trace_file.read(folder, "orders/1")] == [
        report(batch_id=1, milliseconds={"begin": 1.235}),
        report(batch_id=2, milliseconds={"begin": 1.235}),
    ]
    assert trace_file.names(folder) == ["orders/1"]
    path = trace_file.file_of(folder, "orders/1")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]


@pytest.mark.parametrize("given", [{"deliveryGuarantee": "at-least-once"}, {}])
def test_writes_without_a_ledger_share_a_file(tmp_path, given):
    options = {"kafka.bootstrap.servers": "b:1", "topic": "out", "traceDir": str(tmp_path)} | given
    for number in range(3):
        observer(sink_options(options, default_transactional_id=f"random-{number}"))(report(batch_id=number))
    assert trace_file.names(tmp_path) == ["unnamed"]


def test_a_file_is_bounded_and_has_the_last_batches(tmp_path, monkeypatch):
    assert trace_file._HALF == 4 << 20, "as docs/tracing.md says"
    monkeypatch.setattr(trace_file, "_HALF", 2_000)
    for number in range(500):
        trace_file.append(tmp_path, "orders", {"number": number})
    kept = [line["number"] for line in trace_file.read(tmp_path, "orders")]
    assert 2_000 < sum(path.stat().st_size for path in tmp_path.iterdir()) < 4_100
    assert kept == list(range(500 - len(kept), 500))
    assert len(kept) > 100


def test_a_full_file_is_replaced_once_when_two_processes_find_it_full(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_file, "_HALF", 100)
    trace_file.append(tmp_path, "orders", {"number": "0" * 100})
    flock = fcntl.flock

    def overtaken(file: FileIO, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        trace_file.append(tmp_path, "orders", {"number": "1"})
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", overtaken)
    trace_file.append(tmp_path, "orders", {"number": "2"})
    assert [line["number"] for line in trace_file.read(tmp_path, "orders")] == ["0" * 100, "1", "2"]


def test_a_disk_that_is_full_after_the_replacement_closes_no_other_file(tmp_path, monkeypatch):
    """The number of a closed descriptor is soon another thread's socket."""
    monkeypatch.setattr(trace_file, "_HALF", 100)
    trace_file.append(tmp_path, "orders", {"number": "0" * 100})
    opened, others = trace_file._opened, []

    def full(path: Path) -> FileIO:
        if trace_file.file_of(tmp_path, "orders").exists():
            return opened(path)
        others.append(tmp_path.joinpath("others").open("w"))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trace_file, "_opened", full)
    with pytest.raises(OSError, match="No space left"):
        trace_file.append(tmp_path, "orders", {"number": "1"})
    with others[0] as other:
        other.write("still open")


def test_a_damaged_line_is_left_out(tmp_path):
    trace_file.append(tmp_path, "orders", {"number": 1})
    with trace_file.file_of(tmp_path, "orders").open("a") as file:
        file.write('{"numb\n')
    assert list(trace_file.read(tmp_path, "orders")) == [{"number": 1}]


def test_a_link_to_elsewhere_is_not_followed_and_the_batch_does_not_notice(tmp_path, caplog):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    trace_file.file_of(tmp_path, "orders/1").symlink_to(elsewhere)
    observer(sink_options(OPTIONS | {"traceDir": str(tmp_path)}))(report())
    assert elsewhere.read_text() == "mine"
    assert "cannot report batch 7 of query q" in caplog.text


def test_a_trace_goes_to_no_folder_and_no_file_of_somebody_else(tmp_path, give_away, caplog):
    observe = observer(sink_options(OPTIONS | {"traceDir": str(tmp_path / "traces")}))
    observe(report())
    path = trace_file.file_of(tmp_path / "traces", "orders/1")
    size = path.stat().st_size
    give_away(path)
    observe(report())
    assert "is not a file of this user alone" in caplog.text
    give_away(tmp_path / "traces")
    observe(report())
    assert "traces belongs to user" in caplog.text
    assert path.stat().st_size == size


def test_a_trace_goes_to_no_file_with_a_second_name_and_waits_for_no_queues_reader(tmp_path):
    os.mkfifo(trace_file.file_of(tmp_path, "queue"))
    with pytest.raises(OSError, match="No such device"):
        trace_file.append(tmp_path, "queue", {})
    (tmp_path / "elsewhere").write_text("mine")
    os.link(tmp_path / "elsewhere", trace_file.file_of(tmp_path, "linked"))
    with pytest.raises(UnsafeFolder, match="is not a file of this user alone"):
        trace_file.append(tmp_path, "linked", {})
    assert (tmp_path / "elsewhere").read_text() == "mine"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_batch_with_dead_letters_is_a_warning_with_their_number_by_cause(caplog, form):
    caplog.set_level(logging.WARNING, "spark_kafka_eos")
    observe = observer(sink_options(OPTIONS | {"deadLetterTopic": "dead", "logFormat": form}))
    observe(report())
    observe(report(records=50, dead_letters={"undecodable": 2, "not-framed": 1}))
    (record,) = caplog.records
    assert record.message == "batch 7 of query q: 3 of 50 records are dead letters in dead: undecodable=2, not-framed=1"
