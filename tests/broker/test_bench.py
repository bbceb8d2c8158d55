"""The benchmarks without Spark, at sizes that take no time: that they run and count, not how fast."""

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.bench.against import Against
from spark_kafka_eos.lab.bench.eos_performance import EosSettings, eos_performance
from spark_kafka_eos.lab.bench.inputs import Shape, count
from spark_kafka_eos.lab.bench.lab import Lab
from spark_kafka_eos.lab.bench.overhead import IDEMPOTENT, PLAIN, overhead, transactional
from spark_kafka_eos.lab.bench.transport import transport

pytestmark = pytest.mark.broker


@pytest.fixture
def lab(kafka):
    with Lab(kafka) as lab:
        yield lab


def test_an_input_holds_what_its_shape_says_and_is_filled_once(lab):
    shape = Shape(records=1_000, topics=2, partitions=3, compression="zstd")
    data = lab.input(shape)
    assert count(lab.cluster, data.topics) == 1_000
    assert lab.input(shape) is data
    lab.drop(data)
    assert not set(data.topics) & set(lab.kafka.topics())


def test_an_output_with_other_than_all_records_ends_the_benchmark(lab):
    data = lab.input(Shape(records=10))
    with pytest.raises(ToolFailed, match="somebody: the output has 10 records, but the input has 11"):
        lab.check(data.topics, 11, "somebody")


def test_fetch_alone_is_measured_beside_librdkafka_and_java(lab):
    found = transport(lab, Shape(records=2_000), runs=1, against={Against.LIBRDKAFKA, Against.JAVA})
    assert len(found.series) == 4
    assert found.settings["bytes"] > 2_000 * 108


def test_the_overhead_sweep_has_every_way_of_both_clients_and_both_isolation_levels(lab):
    produced, consumed = overhead(lab, megabytes=1, runs=1, sizes=[1_000], lengths_ms=[5], against={Against.LIBRDKAFKA})
    ways = [PLAIN, IDEMPOTENT, transactional(5)]
    lines = [*ways, *(f"librdkafka, {way}" for way in ways)]
    assert produced.lines == tuple(lines)
    assert set(consumed.lines) == {
        f"{level}, {line}" for level in ("read_committed", "read_uncommitted") for line in lines
    }


@pytest.mark.parametrize("pre_registration", [True, False])
def test_eos_performance_copies_exactly_and_continues_where_its_group_is(either_kafka, pre_registration):
    with Lab(either_kafka) as lab:
        data = lab.input(Shape(records=3_000))
        (output,) = lab.topics("eos", 1, 4)
        settings = EosSettings(
            input_topic=data.topics[0],
            output_topic=output,
            num_records=1_200,
            consumer={"kafka.bootstrap.servers": lab.bootstrap, "startingOffsets": "earliest"},
            producer={"kafka.bootstrap.servers": lab.bootstrap},
            consumer_group_id=lab.name("group"),
            transactional_id=lab.name("id"),
            transaction_duration_ms=1,
            max_poll_records=100,
            pre_registration=pre_registration,
        )
        result = eos_performance(settings)
        assert (result.records, result.latency.count) == (1_200, 1_200)
        assert result.transactions.count > 1
        lab.check([output], 1_200, "EOSPerformance")


def test_eos_performance_says_when_its_input_ends(lab):
    data = lab.input(Shape(records=100))
    (output,) = lab.topics("eos", 1, 1)
    settings = EosSettings(
        input_topic=data.topics[0],
        output_topic=output,
        num_records=101,
        consumer={"kafka.bootstrap.servers": lab.bootstrap},
        producer={"kafka.bootstrap.servers": lab.bootstrap},
        consumer_group_id=lab.name("group"),
        transactional_id=lab.name("id"),
    )
    with pytest.raises(ToolFailed, match="fewer than 101 records"):
        eos_performance(settings)
