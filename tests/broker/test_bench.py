"""The benchmarks without Spark in this process, at sizes that take no time: that they run and count, not how fast."""

import re

import pytest
from typer.testing import CliRunner

from lab.bench import scale, store
from lab.bench.against import CLIENTS, Against
from lab.bench.eos_performance import EosSettings, eos_performance
from lab.bench.eos_runs import WITH, WITHOUT, compare_registration
from lab.bench.figures import Comparison
from lab.bench.inputs import Shape, count
from lab.bench.isolation import LEVELS, isolation
from lab.bench.lab import Lab
from lab.bench.overhead import IDEMPOTENT, PLAIN, overhead, transactional
from lab.bench.steady_figures import BUILT_IN, OURS, OURS_SCHEMA
from lab.bench.transport import transport
from lab.commands.bench import bench
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.recorder import recording

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


@pytest.mark.slow
def test_fetch_alone_is_measured_beside_librdkafka_and_java(lab):
    found = transport(lab, Shape(records=2_000), runs=1, against={Against.LIBRDKAFKA, Against.JAVA})
    assert len(found.series) == 4
    assert found.settings["bytes"] > 2_000 * 108


@pytest.mark.slow
def test_steady_state_is_measured_in_a_session_of_its_own(lab, tmp_path, monkeypatch):
    monkeypatch.setattr("lab.commands.bench._on_broker", lambda run: run(lab))
    tiny = "steady --ways foreach-batch --rows 400 --batches 1 --runs 1 --mixed --output"
    done = CliRunner().invoke(bench, [*tiny.split(), str(tmp_path / "a.json")], catch_exceptions=False)
    assert "ms of a trigger" in done.output
    measured, _ = store.read(tmp_path / "a.json")
    assert isinstance(measured, Comparison)
    assert [series.name for series in measured.series] == [OURS, BUILT_IN, OURS_SCHEMA]
    for name in (OURS, OURS_SCHEMA, BUILT_IN):
        assert measured.named(name).median > 0
        assert measured.settings["first_batch_seconds"][name][0] > 0
        assert measured.settings["cpu_seconds"][name][0] > 0


@pytest.mark.slow
def test_producing_is_measured_in_every_way_of_the_three_clients(lab):
    speeds, costs = overhead(lab, megabytes=1, runs=1, sizes=[1_000], lengths_ms=[5], against=CLIENTS)
    lines = [f"{client}, {way}" for client in speeds.panels for way in (PLAIN, IDEMPOTENT, transactional(5))]
    assert speeds.panels == ("kafka-eos", "librdkafka", "Java")
    assert speeds.lines == costs.lines == tuple(lines)
    assert all(point.value > 0 for point in speeds.points)
    assert speeds.settings["kafka"] == lab.kafka.version


@pytest.mark.slow
def test_reading_is_measured_at_both_isolation_levels(lab):
    speeds, costs = isolation(lab, megabytes=1, runs=1, sizes=[1_000], lengths_ms=[5], against=[Against.LIBRDKAFKA])
    topics = [f"{client}, {way}" for client in speeds.panels for way in (PLAIN, transactional(5))]
    assert speeds.lines == costs.lines == tuple(f"{topic}, {level}" for topic in topics for level in LEVELS)


def test_without_pre_registration_each_partition_has_a_request_of_its_own(kafka39):
    with Lab(kafka39) as lab, recording() as requests:
        overhead(lab, megabytes=1, runs=1, sizes=[1_000], lengths_ms=[5_000], pre_registration=False)
    added = [request.about for request in requests.trace().requests if request.api == "AddPartitionsToTxn"]
    assert len(added) == 2 * 4  # the warm-up, too; of four partitions
    assert not any("+" in about for about in added)


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


def test_eos_performance_takes_the_command_line_of_the_kip(kafka39):
    with Lab(kafka39) as lab:
        data = lab.input(Shape(records=1_000))
        (output,) = lab.topics("eos", 1, 4)
        line = (
            f"--input-topic {data.topics[0]} --output-topic {output} --num-records 1000 --throughput -1 "
            f"--producer-props bootstrap.servers={lab.bootstrap} acks=all linger.ms=5 "
            f"--consumer-props bootstrap.servers={lab.bootstrap} auto.offset.reset=earliest max.poll.records=500 "
            "enable.auto.commit=false --consumer-group-id kip --poll-timeout 200 --pre-registration true "
            "--transaction-duration-ms 1 --print-metrics"
        )
        done = CliRunner().invoke(bench, ["eos", *line.split()], catch_exceptions=False)
        assert re.match(r"1000 records sent, [\d.]+ records/sec", done.output)
        assert re.search(r"requests:request-total:\{api=AddPartitionsToTxn\} +: 2\.000", done.output)
        lab.check([output], 1_000, "EOSPerformance")


@pytest.mark.slow
def test_registration_is_compared_in_both_protocols(lab, kafka39):
    with Lab(kafka39) as older:
        found = compare_registration({"TV1": older, "TV2": lab}, transactions=2, runs=1, partitions=[3], records=100)
    requests = {name: by_count["3"]["AddPartitionsToTxn"] for name, by_count in found.settings["requests"].items()}
    assert requests == {f"TV1, {WITHOUT}": 3, f"TV1, {WITH}": 1, f"TV2, {WITHOUT}": 0, f"TV2, {WITH}": 0}
    assert set(found.lines) == set(requests)


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


@pytest.mark.slow
def test_the_steps_of_a_transaction_are_measured_by_partitions_and_by_append_tasks(lab):
    steps = scale.transactions({"TV2": lab}, runs=1, partitions=[2, 5])
    assert len(steps.lines) == 5
    assert all(point.value > 0 for point in steps.points)
    together = scale.together({"TV2": lab}, runs=1, counts=[2])
    assert [point.at for point in together.points] == [2]
