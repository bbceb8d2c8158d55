"""What a replay encodes: the planned dead letters, each once, and no other; its streams are anybody's words."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.model import TopicPartition
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.replay import send
from spark_kafka_eos.replay.stored import StoredLetter

DEAD = TopicPartition("dead", 0)
OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "outputTopics": "in"})


def stored(offset: int) -> StoredLetter:
    letter = DeadLetter(cause="undecodable", topic="in", partition=0, offset=offset)
    return StoredLetter(
        partition=DEAD, offset=offset, timestamp=0, letter=letter, key=None, value=b"%d" % offset, headers=[]
    )


@pytest.mark.parametrize("planned", [[3], [*range(99)], [*range(100)], [*range(101)], [*range(0, 250, 2)]])
def test_each_planned_dead_letter_is_encoded_once_and_no_other(monkeypatch, planned):
    encoded: list[list[bytes]] = []

    class Encoder:
        def __init__(self, *_: Any) -> None: ...

        def add(self, rows: Any) -> list[Any]:
            encoded.append(rows.column("value").to_pylist())
            return []

        def finish(self) -> list[Any]:
            return []

    ranges: list[tuple[TopicPartition, int, int]] = []

    def letters(_: Cluster, wanted: Any) -> Any:
        ranges.extend((each.partition, each.start, each.end) for each in wanted)
        return map(stored, range(300))

    class Known:
        def topic(self, _: str) -> Any:
            return type("Topic", (), {"partitions": [0]})

    monkeypatch.setattr(send, "BlockEncoder", Encoder)
    monkeypatch.setattr(send, "encode_settings", lambda *_: None)
    monkeypatch.setattr(send, "letters", letters)
    write = send._Write(cast("Cluster", Known()), OPTIONS, 0, [(DEAD, offset) for offset in planned], None)
    assert [*write._blocks()] == []
    assert [value for rows in encoded for value in rows] == [b"%d" % offset for offset in planned]
    assert max(map(len, encoded)) <= 100, "a dead letter may be as large as a request"
    assert ranges == [(DEAD, planned[0], planned[-1] + 1)], "and what nobody wants is not read"
