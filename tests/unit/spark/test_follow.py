"""A followed query shows each micro-batch that had rows once, the last one too, and raises what ended it."""

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_eos.spark.follow import follow


def progress(batch: int, rows: int) -> SimpleNamespace:
    return SimpleNamespace(batchId=batch, numInputRows=rows, batchDuration=610)


class Query:
    """Ends after as many looks as there are lists of recent progress."""

    def __init__(self, *looks: list[SimpleNamespace]) -> None:
        self.looks = list(looks)
        self.recentProgress: list[SimpleNamespace] = []

    def awaitTermination(self, timeout: int) -> bool:
        self.recentProgress = self.looks.pop(0)
        return not self.looks


def shown(*looks: list[SimpleNamespace]) -> list[str]:
    lines: list[str] = []
    follow(cast(StreamingQuery, Query(*looks)), lines.append)
    return lines


def test_a_batch_seen_twice_is_shown_once() -> None:
    assert shown([progress(0, 20_000)], [progress(0, 20_000), progress(1, 5)]) == [
        "batch 0: 20,000 rows in 0.61 s",
        "batch 1: 5 rows in 0.61 s",
    ]


def test_a_trigger_without_rows_is_not_shown() -> None:
    assert shown([progress(0, 0)], [progress(0, 0), progress(0, 7)]) == ["batch 0: 7 rows in 0.61 s"]


def test_what_ends_the_query_is_raised() -> None:
    class Failing(Query):
        def awaitTermination(self, timeout: int) -> bool:
            raise RuntimeError("the query failed")

    with pytest.raises(RuntimeError, match="the query failed"):
        follow(cast(StreamingQuery, Failing()), print)
