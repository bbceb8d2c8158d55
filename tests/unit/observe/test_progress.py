"""What the progress listener says of a micro-batch, and its line in the log."""

from __future__ import annotations

import json

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.lag import OpenTransaction
from spark_kafka_eos.observe.progress import QueryFigures, figures, kafka_sources
from spark_kafka_eos.observe.tallies import RangeTally

T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
HELD = OpenTransaction(
    partition=T1, start_offset=4, producer_id=9, epoch=2, transactional_id="stuck", state="Ongoing", open_ms=12_000
)


def source(start, end, latest=None):
    return {"description": "s", "numInputRows": 7, "startOffset": start, "endOffset": end, "latestOffset": latest}


def one(start, end, latest=None):
    [read] = kafka_sources({"sources": [source(start, end, latest)]})
    return read


def tally(partition, start, end, size=100, aborted=0):
    return RangeTally(partition=partition, start=start, end=end, bytes=size, aborted=aborted)


READ = one({"t": {"0": 0, "1": 0}}, {"t": {"0": 10, "1": 4}}, {"t": {"0": 10, "1": 6}})


def test_only_sources_with_kafkas_offsets_are_reported():
    assert kafka_sources({"sources": [source(1, 2, 3), source(None, "{}"), source(None, None)]}) == []


def test_figures_that_all_tasks_reported_are_complete():
    found = figures(READ, None, (), [tally(T0, 0, 6, aborted=2), tally(T0, 6, 10), tally(T1, 0, 4, aborted=1)])
    assert (found.rows, found.offsets) == (7, 14)
    assert (found.bytes_read, found.rows_aborted, found.complete) == (300, 3, True)
    assert found.behind == (0, 2)


def test_a_task_that_ran_twice_counts_once_and_another_sources_not_at_all():
    found = figures(READ, None, (), [tally(T0, 0, 10), tally(T0, 0, 10), tally(T1, 0, 4), tally(OTHER, 0, 50)])
    assert (found.bytes_read, found.complete) == (200, True)


def test_a_task_that_did_not_report_leaves_the_figures_incomplete():
    assert not figures(READ, None, (), [tally(T0, 0, 10)]).complete
    silent = figures(READ, None, (), [])
    assert (silent.bytes_read, silent.rows_aborted, silent.complete) == (None, None, False)


@pytest.mark.parametrize("start", [None, "None", {"": {}}, {"t": {"0": 0}}])
def test_without_the_start_of_a_batch_its_figures_may_be_incomplete(start):
    found = figures(one(start, {"t": {"0": 10, "1": 4}}), None, (), [tally(T0, 0, 10), tally(T1, 1, 4)])
    assert (found.offsets, found.bytes_read, found.complete) == (None, 200, False)


def test_the_line_is_json_and_names_what_holds_the_query():
    log_ends = {
        T0: LogEnds(last_stable_offset=10, high_watermark=10),
        T1: LogEnds(last_stable_offset=4, high_watermark=9),
        OTHER: LogEnds(last_stable_offset=0, high_watermark=5),
    }
    shown = figures(READ, log_ends, [HELD], [tally(T0, 0, 10), tally(T1, 0, 4, aborted=3)])
    assert shown.lso_lag == {T0: 0, T1: 5}
    batch = QueryFigures(query_id="q", run_id="r", name="copy", batch_id=3, sources=(shown,))
    assert batch.held
    line = str(batch)
    assert "\n" not in line
    assert json.loads(line) == {
        "query_id": "q",
        "run_id": "r",
        "name": "copy",
        "batch_id": 3,
        "sources": [
            {
                "topics": ["t"],
                "rows": 7,
                "offsets": 14,
                "min_offsets_behind_latest": 0,
                "max_offsets_behind_latest": 2,
                "avg_offsets_behind_latest": 1.0,
                "lso_lag": {"t-1": 5},
                "held_by": [
                    {
                        "partition": "t-1",
                        "start_offset": 4,
                        "transactional_id": "stuck",
                        "producer_id": 9,
                        "epoch": 2,
                        "state": "Ongoing",
                        "open_ms": 12000,
                    }
                ],
                "bytes_read": 200,
                "rows_aborted": 3,
                "complete": True,
            }
        ],
    }


def test_what_could_not_be_asked_is_null_in_the_line():
    unknown = figures(one(None, {"t": {"0": 1}}), None, (), [])
    (shown,) = json.loads(str(QueryFigures(query_id="q", run_id="r", sources=(unknown,))))["sources"]
    assert [shown[name] for name in ("lso_lag", "min_offsets_behind_latest", "bytes_read")] == [None, None, None]
