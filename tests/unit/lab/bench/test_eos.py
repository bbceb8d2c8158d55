"""EOSPerformance without a broker: polls, the printed line, the arguments."""

import pyarrow as pa
import pytest
import typer

from lab.bench.eos_performance import EosResult, split
from lab.bench.eos_runs import added
from lab.bench.figures import Point, Sweep, latencies
from lab.bench.request_metrics import RequestMetrics
from lab.commands.bench import parse_against
from lab.commands.bench_eos import one_value_each, properties, truth
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.trace import Request, Trace


def result(seconds, *milliseconds, pre_registration=False):
    found = latencies((ms, 1) for ms in milliseconds)
    return EosResult(
        records=1_000,
        bytes=2 * 1024 * 1024,
        seconds=seconds,
        latency=found,
        transactions=found,
        commits=found,
        requests=RequestMetrics(),
        pre_registration=pre_registration,
    )


def test_the_result_is_printed_as_producer_performance_prints_it():
    assert str(result(2.0, 1.4, 2.5, 3.6)) == (
        "1000 records sent, 500.000000 records/sec (1.00 MB/sec), 2.50 ms avg latency, 3.60 ms max latency, "
        "2 ms 50th, 4 ms 95th, 4 ms 99th, 4 ms 99.9th."
    )


def test_metrics_are_printed_as_kafka_s_tools_print_them():
    metrics = RequestMetrics()
    busy = Request(api="EndTxn", node="a:1", start=0, milliseconds=1.5, error="CONCURRENT_TRANSACTIONS")
    done = Request(api="EndTxn", node="a:1", start=20, milliseconds=2.5)
    for _ in range(2):
        metrics.add(Trace(began_ms=0, milliseconds=30, requests=(busy, done)))
    assert list(metrics.lines()) == [
        "Metric Name                                                                Value",
        "requests:request-error-total:{api=EndTxn, error=CONCURRENT_TRANSACTIONS} : 2.000",
        "requests:request-latency-avg:{api=EndTxn}                                : 2.000",
        "requests:request-latency-max:{api=EndTxn}                                : 2.500",
        "requests:request-total:{api=EndTxn}                                      : 4.000",
        "requests:retry-time-ms-total:{error=CONCURRENT_TRANSACTIONS}             : 40.000",
    ]
    assert (metrics.count("EndTxn"), metrics.count("Produce")) == (4, 0)


def test_results_for_more_partitions_are_added_and_those_for_the_same_replaced():
    def sweep(runs, **values):
        points = [Point.of("a", float(count.strip("_")), [value]) for count, value in values.items()]
        requests = {"a": {count.strip("_"): {"runs": runs, "Produce": value} for count, value in values.items()}}
        return Sweep(title="t", x="x", y="y", points=tuple(points), settings={"runs": runs, "requests": requests})

    found = added(sweep(7, _64=1, _512=9), sweep(5, _512=8, _256=4))
    assert [(point.at, point.value) for point in found.points] == [(64, 1), (256, 4), (512, 8)]
    requests = {
        "64": {"runs": 7, "Produce": 1},
        "512": {"runs": 5, "Produce": 8},
        "256": {"runs": 5, "Produce": 4},
    }
    assert found.settings == {"runs": 5, "requests": {"a": requests}}


def test_the_runs_of_replaced_results_do_not_count():
    def sweep(runs):
        requests = {"a": {"64": {"runs": runs}}}
        points = (Point.of("a", 64, [1.0]),)
        return Sweep(title="t", x="x", y="y", points=points, settings={"runs": runs, "requests": requests})

    assert added(sweep(3), sweep(7)).settings["runs"] == 7


def test_a_command_line_of_kafka_s_tools_may_have_several_properties_after_an_option():
    given = ["--producer-props", "a=1", "b=2", "--num-records", "7", "--consumer-props", "c=3", "--print-metrics"]
    assert one_value_each(given) == [
        *("--producer-props", "a=1", "--producer-props", "b=2", "--num-records", "7"),
        *("--consumer-props", "c=3", "--print-metrics"),
    ]


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
