"""A source whose checkpoint is an old copy: no batch is planned across the end of the sink's ledger."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import DataLoss
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.ledger import progress
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.source_offset import SinkIdentity, SourceOffset
from tests.unit.reading.brokers import T0, T1, Brokers, json_of, recorded

SINK = {"sink.kafka.transactional.id": "copy"}


def of(start, end, *, cluster="model", origin=None):
    return SourceProgress(cluster=cluster, offsets=end, start=start, origin=origin)


class Ledger:
    """`ledger(source, …)`: the sink's last entry, with these sources; `read` has the ids it was read for."""

    def __init__(self):
        self.read = []
        self._entry = None

    def __call__(self, *sources, incomplete=False):
        self._entry = LedgerEntry(
            query_id="q", batch_id=7, digest="d", serial=3, sources=sources, incomplete=incomplete
        )

    def last_entry(self, sink):
        self.read.append(sink.transactional_id)
        return self._entry, "model"


@pytest.fixture
def ledger(monkeypatch):
    kept = Ledger()
    monkeypatch.setattr(progress, "_last_entry", kept.last_entry)
    return kept


def ends(source, start, count, *, limited=True):
    """The ends of the next batches."""
    found = []
    for _ in range(count):
        end = recorded(source.latest(start, limited=limited))
        if end != start:
            source.batch(start, end)
        start = end
        found.append(end)
    return found


def test_an_old_copy_repeats_up_to_the_last_batch_then_that_batch_and_then_goes_on(open_positions, ledger, caplog):
    ledger(of({T0: 20, T1: 30}, {T0: 25, T1: 30}))
    source = open_positions(Brokers(t=[(0, 100), (0, 100)]), **SINK)
    expected = [json_of(t=[20, 30]), json_of(t=[25, 30]), json_of(t=[100, 100])]
    assert ends(source, json_of(t=[3, 30]), 3) == expected
    assert ledger.read == ["copy"]
    assert "the checkpoint is behind the ledger of 'copy'" in caplog.text


def test_without_the_sinks_name_nothing_is_looked_up(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    assert ends(open_positions(Brokers(t=[(0, 100)])), json_of(t=[3]), 1) == [json_of(t=[100])]
    assert ledger.read == []


def test_a_query_that_is_where_its_sink_is_goes_on_at_once(open_positions, ledger, caplog):
    ledger(of({T0: 25}, {T0: 25}))
    source = open_positions(Brokers(t=[(0, 100)]), **SINK)
    assert ends(source, json_of(t=[25]), 1) == [json_of(t=[100])]
    assert "behind the ledger" not in caplog.text


def test_a_query_that_determines_its_first_start_itself_reads_no_ledger_for_its_next_batches(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    brokers = Brokers(t=[(0, 10)])
    source = open_positions(brokers, startingOffsets="earliest", **SINK)
    first = recorded(source.latest(source.initial(), limited=False))
    brokers.has(t=[(0, 100)])
    assert ends(source, first, 1) == [json_of(t=[100])]
    assert ledger.read == []


def test_limits_apply_up_to_the_last_batch_and_not_to_it(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 60}))
    source = open_positions(Brokers(t=[(0, 100)]), maxOffsetsPerTrigger="15", **SINK)
    expected = [json_of(t=[15]), json_of(t=[20]), json_of(t=[60]), json_of(t=[75])]
    assert ends(source, json_of(t=[0]), 4) == expected


def test_nothing_is_waited_for_while_batches_are_repeated(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    source = open_positions(Brokers(t=[(0, 30)]), minOffsetsPerTrigger="1000", **SINK)
    assert ends(source, json_of(t=[10]), 3) == [json_of(t=[20]), json_of(t=[25]), json_of(t=[25])], "and then it waits"


def test_available_now_repeats_and_then_reads_up_to_its_end(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, **SINK)
    source.pin()
    first = ends(source, json_of(t=[10]), 1)
    brokers.has(t=[(0, 500)])
    assert [*first, *ends(source, first[-1], 3)] == [json_of(t=[each]) for each in (20, 25, 100, 100)]


def test_after_a_last_batch_without_data_nothing_new_is_there_once(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 20}))
    source = open_positions(Brokers(t=[(0, 100)]), **SINK)
    assert ends(source, json_of(t=[10]), 3) == [json_of(t=[20]), json_of(t=[20]), json_of(t=[100])]


def test_a_batch_that_runs_again_and_ends_there_counts_as_repeated(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 20}))
    source = open_positions(Brokers(t=[(0, 100)]), **SINK)
    source.batch(json_of(t=[10]), json_of(t=[20]))
    assert ledger.read == [], "the sink settles that batch first"
    assert ends(source, json_of(t=[20]), 2) == [json_of(t=[20]), json_of(t=[100])]


def test_an_added_partition_is_not_read_before_the_ledgers_end(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    source = open_positions(Brokers(t=[(0, 100), (0, 9)]), **SINK)
    assert ends(source, json_of(t=[10]), 3) == [json_of(t=[20]), json_of(t=[25]), json_of(t=[100, 9])]


def test_a_topic_that_ends_before_the_copy_is_still_data_loss(open_positions, ledger):
    ledger(of({T0: 20}, {T0: 25}))
    source = open_positions(Brokers(t=[(0, 5)]), **SINK)
    with pytest.raises(DataLoss, match="t-0 from 10 .*ends at 5"):
        source.batch(json_of(t=[10]), source.latest(json_of(t=[10]), limited=True))


IDENTITY = SinkIdentity(transactional_id="copy", ledger_topic="kafka-eos-ledger", cluster="model")


@pytest.mark.parametrize("start", ["committed", "committed-or-earliest", "committed-or-latest", "earliest", "latest"])
def test_the_first_end_names_the_sink_that_the_source_names_and_no_later_one_does(open_positions, ledger, start):
    ledger(of({T0: 20}, {T0: 25}))
    brokers = Brokers(t=[(0, 100)])
    source = open_positions(brokers, startingOffsets=start, **SINK)
    first = recorded(source.latest(source.initial(), limited=False))
    assert SourceOffset.from_json(first).sinks == (IDENTITY,)
    brokers.has(t=[(0, 200)])
    assert SourceOffset.from_json(source.latest(first, limited=False)).sinks == ()


def test_a_sink_on_another_cluster_whose_ledger_was_not_read_is_named_without_its_cluster(open_positions, ledger):
    elsewhere = SINK | {"sink.kafka.bootstrap.servers": "another:9092"}
    source = open_positions(Brokers(t=[(0, 100)]), startingOffsets="earliest", **elsewhere)
    first = SourceOffset.from_json(source.latest(source.initial(), limited=False))
    assert first.sinks == (replace(IDENTITY, cluster=""),)
    assert ledger.read == []


def test_a_start_at_a_group_names_the_sinks_whose_transactions_committed_its_offsets(open_positions):
    def named(*marks):
        brokers = Brokers(t=[(0, 100)] * len(marks))
        committed = {TopicPartition("t", number): (5, mark) for number, mark in enumerate(marks)}
        brokers.group("g").commit_at_once(committed, now_s=0.0)
        source = open_positions(brokers, startingOffsets="committed", **{"kafka.group.id": "g"})
        first = SourceOffset.from_json(source.latest(source.initial(), limited=False))
        return [sink.transactional_id for sink in first.sinks]

    assert named("", "a consumer's own") == []
    assert named(source_mark("copy"), source_mark("audit"), "") == ["audit", "copy"]


def test_an_end_with_sinks_is_read_by_all_who_read_offsets():
    sinks = (IDENTITY, SinkIdentity(transactional_id='a "b"'))
    end = SourceOffset(offsets={T0: 8}, sinks=sinks).to_json()
    assert offsets_from_json(end) == {T0: 8}
    assert SourceOffset.from_json(json.loads(json.dumps(end))).sinks == sinks
    assert SourceOffset(offsets={T0: 8}).to_json() == {"t": {"0": 8}}
    with pytest.raises(ValueError, match="expected id, topic and cluster"):
        SourceOffset.from_json({'sinks=[{"id":7}]': {}})
