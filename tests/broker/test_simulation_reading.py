"""What the simulation's model gives to readers is what real brokers give: record batches, markers, stable offsets."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from spark_kafka_eos.kafka.wire.record_batch import HEADER, check_crc, scan
from tests.transacting import ModelSide, RealSide

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


def fill(side, name, chance):
    """A few transactions of two owners, committed, aborted, and one left open."""
    names = (f"{name}-a", f"{name}-b")
    for _ in range(8):
        who = chance.choice(names)
        _, *held = side.init(who)
        sequences = {0: 0, 1: 0}
        for _ in range(chance.randrange(1, 4)):
            partition, values = chance.randrange(2), [b"x" * chance.randrange(100)] * chance.randrange(1, 4)
            if side.version < 2:
                side.add(who, held, partition)
            assert side.produce(who, held, partition, sequences[partition], values)[0] == 0
            sequences[partition] += len(values)
        if chance.random() < 0.8:
            assert side.end(who, held, commit=chance.random() < 0.5)[0] == 0
            side.state(who)


def shown(side, answer):
    """An answer in terms that both sides share: times apart, and producer ids in the order in which they were met."""
    batches = []
    for header in scan(answer.records):
        check_crc(answer.records, header)
        payload = bytes(answer.records[header.position + HEADER.size : header.position + header.size])
        shared = side.same(header.producer_id)
        batches.append((replace(header, crc=0, base_timestamp=0, max_timestamp=0, producer_id=shared), payload))
    aborted = [(side.same(a.producer_id), a.first_offset) for a in answer.aborted]
    ends = answer.high_watermark, answer.last_stable_offset, answer.log_start_offset
    return answer.error_code, ends, batches, aborted, len(answer.records)


@pytest.mark.parametrize("seed", range(4))
def test_every_offset_is_read_alike_at_both_isolation_levels(either_kafka, cluster, seed):
    topic = either_kafka.create_topic(f"simulation-reading-{next(numbers)}", 2)
    real = RealSide(cluster, topic)
    model = ModelSide(real.version, topic=topic)
    for side in (real, model):
        fill(side, topic, random.Random(seed))
    for partition, committed in itertools.product((0, 1), (False, True)):
        end = model.read(partition, 0).high_watermark
        for offset in range(-1, end + 2):
            expected = shown(real, real.read(partition, offset, committed=committed))
            assert shown(model, model.read(partition, offset, committed=committed)) == expected


def test_a_batch_that_is_larger_than_what_may_come_comes_whole_and_alone(either_kafka, cluster):
    topic = either_kafka.create_topic(f"simulation-reading-{next(numbers)}", 2)
    real = RealSide(cluster, topic)
    model = ModelSide(real.version, topic=topic)
    for side in (real, model):
        fill(side, topic, random.Random(1))
    for limit in range(1, 600, 23):
        for limits in ({"max_bytes": limit}, {"partition_max_bytes": limit}):
            expected = shown(real, real.read(0, 0, **limits))
            assert shown(model, model.read(0, 0, **limits)) == expected
