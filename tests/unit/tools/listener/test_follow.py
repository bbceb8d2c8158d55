"""A followed query shows each micro-batch that had rows once, the last one too, and raises what ended it."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.tools.listener.follow import print_progress

_triggers = itertools.count()


def progress(batch: int, rows: int) -> dict[str, Any]:
    at = f"2026-03-01T10:00:{next(_triggers) % 60:02}.000Z"
    return {"timestamp": at, "batchId": batch, "numInputRows": rows, "batchDuration": 610}


class Progress:
    """Spark's object in the JVM; counts the calls, each of which goes through py4j."""

    def __init__(self, query: Query, fields: dict[str, Any]) -> None:
        self._query, self._fields = query, fields

    def timestamp(self) -> str:
        self._query.calls += 1
        return str(self._fields["timestamp"])

    def json(self) -> str:
        self._query.calls += 1
        return json.dumps(self._fields)


class Query:
    """Ends after as many looks as there are lists of recent progress."""

    def __init__(self, *looks: list[dict[str, Any]]) -> None:
        self.looks = list(looks)
        self.recent: list[dict[str, Any]] = []
        self.calls = 0

    @property
    def _jsq(self) -> Query:
        return self

    def awaitTermination(self, timeout: int) -> bool:
        self.recent = self.looks.pop(0)
        return not self.looks

    def recentProgress(self) -> list[Progress]:
        self.calls += 1
        return [Progress(self, each) for each in self.recent]

    def lastProgress(self) -> Progress | None:
        self.calls += 1
        return Progress(self, self.recent[-1]) if self.recent else None


class Connected(Query):
    """Through Spark Connect, whose progress is in Python."""

    _jsq = None  # type: ignore[assignment]

    @property
    def recentProgress(self) -> list[SimpleNamespace]:  # type: ignore[override]
        return [SimpleNamespace(json=json.dumps(each)) for each in self.recent]


def shown(query: Query) -> list[str]:
    lines: list[str] = []
    print_progress(cast(StreamingQuery, query), lines.append)
    return lines


@pytest.mark.parametrize("kind", [Query, Connected])
def test_a_batch_seen_twice_is_shown_once(kind: type[Query]) -> None:
    first, second = progress(0, 20_000), progress(1, 5)
    assert shown(kind([first], [first, second])) == ["batch 0: 20,000 rows in 0.61 s", "batch 1: 5 rows in 0.61 s"]


@pytest.mark.parametrize("kind", [Query, Connected])
def test_a_trigger_without_rows_is_not_shown(kind: type[Query]) -> None:
    idle = progress(0, 0)
    assert shown(kind([], [idle], [idle, progress(0, 7)])) == ["batch 0: 7 rows in 0.61 s"]


def test_batches_between_two_looks_are_shown_in_their_order() -> None:
    several = [progress(number, number) for number in range(1, 4)]
    assert [line.partition(":")[0] for line in shown(Query(several))] == ["batch 1", "batch 2", "batch 3"]


def test_a_look_that_finds_nothing_new_is_two_calls() -> None:
    recent = [progress(number, 1) for number in range(30)]
    once, ten_times = Query(recent), Query(*[recent] * 10)
    shown(once)
    shown(ten_times)
    assert ten_times.calls - once.calls == 9 * 2


def test_what_ends_the_query_is_raised() -> None:
    class Failing(Query):
        def awaitTermination(self, timeout: int) -> bool:
            raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError, match="the query failed"):
        print_progress(cast(StreamingQuery, Failing()), print)
