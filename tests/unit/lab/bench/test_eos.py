"""EOSPerformance without a broker: polls, the printed line, the arguments."""

import pyarrow as pa
import pytest
import typer

from spark_kafka_eos.lab.bench.eos_performance import EosResult, split
from spark_kafka_eos.lab.bench.eos_runs import WITH, WITHOUT, comparison
from spark_kafka_eos.lab.bench.figures import latencies
from spark_kafka_eos.lab.commands.bench import parse_against
from spark_kafka_eos.lab.commands.bench_eos import properties, truth
from spark_kafka_eos.model import TopicPartition


def result(seconds, *milliseconds, pre_registration=False):
    found = latencies((ms, 1) for ms in milliseconds)
    return EosResult(
        records=1_000,
        bytes=2 * 1024 * 1024,
        seconds=seconds,
        latency=found,
        transactions=found,
        pre_registration=pre_registration,
    )


def test_the_result_is_printed_as_producer_performance_prints_it():
    assert str(result(2.0, 1.4, 2.5, 3.6)) == (
        "1000 records sent, 500.000000 records/sec (1.00 MB/sec), 2.50 ms avg latency, 3.60 ms max latency, "
        "2 ms 50th, 4 ms 95th, 4 ms 99th, 4 ms 99.9th."
    )


def test_with_and_without_pre_registration_are_two_sides():
    found = comparison({WITHOUT: [result(4.0, 8.0), result(2.0, 4.0)], WITH: [result(1.5, 1.0)]}, partitions=16)
    assert found.ratio(WITH, WITHOUT) == pytest.approx(2.0)
    assert found.settings["commit_ms"] == {WITHOUT: 6.0, WITH: 1.0}
    assert found.settings["partitions"] == 16


def test_a_poll_has_a_limited_number_of_rows_and_the_offsets_where_each_partition_continues():
    rows = pa.record_batch(
        {
            "key": pa.array([b"k"] * 5),
            "value": pa.array([b"a", b"b", b"c", b"d", b"e"]),
            "topic": ["in"] * 5,
            "partition": pa.array([0, 0, 1, 1, 1], pa.int32()),
            "offset": pa.array([7, 9, 0, 1, 5], pa.int64()),
        }
    )
    polls = list(split(rows, 3))
    assert [poll.rows["value"].to_pylist() for poll in polls] == [[b"a", b"b", b"c"], [b"d", b"e"]]
    assert polls[0].following == {TopicPartition("in", 0): 10, TopicPartition("in", 1): 1}
    assert polls[1].following == {TopicPartition("in", 1): 6}
    assert polls[0].rows.schema.names == ["key", "value"]


def test_properties_get_kafka_s_prefix_unless_they_have_it():
    given = ["bootstrap.servers=a:1,b:2 linger.ms=5", "kafka.client.id=x=y"]
    assert properties(given) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.linger.ms": "5",
        "kafka.client.id": "x=y",
    }
    with pytest.raises(typer.BadParameter, match="'acks' is not NAME=VALUE"):
        properties(["acks"])


def test_pre_registration_is_true_or_false():
    assert [truth("true"), truth("False")] == [True, False]
    with pytest.raises(typer.BadParameter, match="yes"):
        truth("yes")


def test_opponents_are_named_with_commas_between_them():
    assert parse_against("builtin, java") == {"builtin", "java"}
    assert parse_against("") == frozenset()
    with pytest.raises(typer.BadParameter, match=r"flink[\s\S]*librdkafka"):
        parse_against("flink")
