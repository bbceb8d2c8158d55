"""Where a sink has committed a source's offsets: which of the sink's sources is this one?"""

from __future__ import annotations

import uuid
from typing import cast

import pytest

from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger import progress
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress
from spark_kafka_eos.ledger.progress import committed_by, committed_progress, last_batch
from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.source import SinkLedger
from spark_kafka_eos.source_offset import Origin, SinkIdentity

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
GIVEN = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "sink.kafka.transactional.id": "copy"}
SINK = cast(SinkLedger, source_options(GIVEN).sink)


def of(start, end, *, cluster="model", origin=None):
    return SourceProgress(cluster=cluster, offsets=end, start=start, origin=origin)


@pytest.fixture
def ledger(monkeypatch):
    """`ledger(source, …)`: the sink's last entry has these sources."""

    def has(*sources, **more):
        entry = LedgerEntry(query_id="q", batch_id=7, digest="d", serial=3, sources=sources, **more)
        monkeypatch.setattr(progress, "_last_entry", lambda sink: (entry, "sinks"))

    return has


def found(*partitions, topic_ids=None):
    return last_batch(SINK, Origin(cluster="model", topic_ids=topic_ids or {}), partitions)


def test_each_source_has_its_own_place_by_cluster_and_partitions(ledger):
    ids = {"t": FIRST, "u": SECOND}
    ledger(None, of({T0: 1}, {T0: 2}), of({U0: 3}, {U0: 4}), of({T0: 8}, {T0: 9}, cluster="another"))
    assert found(T0, T1, topic_ids=ids).offsets == {T0: 2}
    assert found(U0, topic_ids=ids).offsets == {U0: 4}
    assert found(TopicPartition("v", 0), topic_ids=ids | {"v": uuid.UUID(int=3)}) is None


def test_of_two_sources_that_share_a_partition_the_one_with_the_same_partitions_counts(ledger):
    ids = {"t": FIRST}
    ledger(of({T0: 1}, {T0: 2}), of({T0: 5, T1: 5}, {T0: 6, T1: 6}))
    assert found(T0, T1, topic_ids=ids).offsets == {T0: 6, T1: 6}


def test_two_sources_with_the_same_partitions_are_refused_unless_they_were_at_the_same_offsets(ledger):
    ids = {"t": FIRST}
    ledger(of({T0: 1}, {T0: 2}), of({T0: 1}, {T0: 2}))
    assert found(T0, topic_ids=ids).offsets == {T0: 2}
    ledger(of({T0: 1}, {T0: 2}), of({T0: 1}, {T0: 3}))
    with pytest.raises(LedgerRefused, match="two sources of the query with transactional.id 'copy' read the same"):
        found(T0, topic_ids=ids)


def test_offsets_of_a_topic_that_was_created_again_are_no_end(ledger):
    old = Origin(cluster="model", topic_ids={"t": uuid.UUID(int=9)})
    ledger(of({T0: 1}, {T0: 2}, origin=old))
    assert found(T0, topic_ids={"t": FIRST}) is None
    assert found(T0, topic_ids=old.topic_ids).offsets == {T0: 2}


def test_an_incomplete_entry_is_no_end(ledger):
    ledger(of({T0: 1}, {T0: 2}), incomplete=True)
    assert found(T0, topic_ids={"t": FIRST}) is None


def test_of_two_sources_those_partitions_count_that_are_wanted(ledger):
    ledger(of({T0: 1, T1: 1}, {T0: 2, T1: 2}), of({T0: 5, U0: 5}, {T0: 6, U0: 6}))
    ids = {"t": FIRST, "u": SECOND}
    assert found(T0, T1, topic_ids=ids).offsets == {T0: 2, T1: 2}
    assert found(T0, U0, topic_ids=ids).offsets == {T0: 6, U0: 6}


def test_what_ended_in_real_time_and_was_not_read_since_is_committed_and_no_end_of_a_batch(ledger):
    origin = Origin(cluster="model", topic_ids={"u": SECOND}, leader_epochs={U0: 5}, finds_pattern=True)
    read = of({T0: 1}, {T0: 2}, origin=Origin(cluster="model", topic_ids={"t": FIRST}, finds_pattern=True))
    ledger(read, left=of(None, {U0: 70}, origin=origin))
    assert committed_by(SINK, "model") == {T0: 2, U0: 70}
    assert committed_by(SINK, "another") == {}
    found_by, _ = committed_progress(SINK, "model")
    assert found_by.origin == Origin(
        cluster="", topic_ids={"t": FIRST, "u": SECOND}, leader_epochs={U0: 5}, finds_pattern=True
    )
    assert found(U0, topic_ids={"u": SECOND}) is None


def test_without_an_entry_there_is_no_end(monkeypatch):
    monkeypatch.setattr(progress, "_last_entry", lambda sink: (None, "sinks"))
    assert found(T0, topic_ids={"t": FIRST}) is None
    assert committed_by(SINK, "model") == {}


def test_the_offsets_of_all_sources_of_a_cluster_are_committed_with_what_is_known_of_their_origin(ledger):
    origins = [
        Origin(cluster="model", topic_ids={"t": FIRST}, leader_epochs={T0: 4}),
        Origin(cluster="model", topic_ids={"u": SECOND}, leader_epochs={U0: 5}),
    ]
    ledger(
        of(None, {T0: 2}, origin=origins[0]),
        None,
        of(None, {U0: 3}, origin=origins[1]),
        of(None, {T1: 9}),
        of(None, {T0: 8}, cluster="another"),
    )
    assert committed_by(SINK, "model") == {T0: 2, U0: 3, T1: 9}
    of_model, identity = committed_progress(SINK, "model")
    assert identity == SinkIdentity(transactional_id="copy", ledger_topic="kafka-eos-ledger", cluster="sinks")
    assert (origin := of_model.origin) is not None
    assert (origin.topic_ids, origin.leader_epochs) == ({"t": FIRST, "u": SECOND}, {T0: 4, U0: 5})
    assert committed_by(SINK, "another") == {T0: 8}


def test_sources_at_different_offsets_of_one_partition_are_refused(ledger):
    ledger(of(None, {T0: 2, T1: 3}), of(None, {T1: 3}))
    assert committed_by(SINK, "model") == {T0: 2, T1: 3}
    ledger(of(None, {T0: 2, T1: 3}), of(None, {T1: 4}))
    with pytest.raises(LedgerRefused, match="'copy' read t-1, and are at offsets 3 and 4"):
        committed_by(SINK, "model")
