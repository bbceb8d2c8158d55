"""A topic that takes smaller record batches than the query would make: they are cut to fit, in both protocols."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from spark_kafka_eos.eos.appending import append
from spark_kafka_eos.eos.blocks import BlockEncoder
from spark_kafka_eos.eos.layout import layout
from spark_kafka_eos.eos.settle import Appended, settle
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.model import MicroBatch
from spark_kafka_eos.options import sink_options

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
LIMIT = 1_000
BATCH = MicroBatch(query_id="query", batch_id=0, digest="digest", start={}, end={})


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"limited-{next(numbers)}", 1, {"max.message.bytes": LIMIT})


@pytest.fixture
def run(either_kafka, cluster, topic, owner):
    """`run(values)`: batch 0 with these values, as an encode task and the driver write it; its report."""

    def run(values):
        sink = sink_options({"kafka.bootstrap.servers": either_kafka.bootstrap, "deliveryGuarantee": "at-least-once"})
        rows = pa.record_batch({"key": pa.nulls(len(values), pa.binary()), "value": pa.array(values, pa.binary())})

        def write(identity):
            encoder = BlockEncoder(layout(sink, topic, cluster), 0, pytest.fail, lambda: 0)
            blocks = [*encoder.add(rows), *encoder.finish()]
            acks = append(cluster, identity, [(block.partition, block.records, block.data) for block in blocks])
            assert sum(ack.records for ack in acks) == len(values)
            return Appended(partitions=1, records=len(values), bytes=sum(ack.bytes for ack in acks))

        return settle(owner(), BATCH, write, max_tries=1, append_mode="driver")

    return run


def test_record_batches_are_cut_to_what_the_topic_takes(run, topic, consumed):
    values = [b"%0100d" % number for number in range(100)]
    assert run(values).outcome == "committed"
    assert consumed(topic) == values


def test_a_record_too_large_for_the_topic_fails_the_batch_and_nothing_of_it_is_visible(run, topic, consumed):
    with pytest.raises(InvalidRow, match=rf"{topic}-0 .*1,000 \(the topic's max.message.bytes\)") as raised:
        run([b"small", b"x" * LIMIT, b"small"])
    assert raised.value.committed == "nothing"
    assert consumed(topic) == consumed(topic, isolation="read_uncommitted") == []
