"""The benchmarks in Spark, at sizes that take no time: that each side runs and its output is counted, not how fast."""

import pytest

from lab.bench import fresh_start, sides, spark_runs
from lab.bench.against import Against
from lab.bench.backlog import backlog
from lab.bench.checkpoint import checkpoint
from lab.bench.copies import TITLES, Copy
from lab.bench.floor import floor
from lab.bench.footprint import footprint
from lab.bench.inputs import Shape
from lab.bench.lab import Lab
from lab.bench.latency import latency
from lab.bench.memory import HEAP, WAYS, long_stream, memory, mixed
from lab.bench.places import Where
from lab.bench.real_time import Flow, real_time
from lab.bench.start import starts
from lab.bench.start_figures import NEW_PAGES, TOGETHER
from lab.bench.start_figures import starts as start_table
from lab.bench.steady import Load, first_batches
from lab.bench.steady_figures import BUILT_IN, NOTHING, OURS, READY_MADE, RELAYED, Way, grids
from lab.bench.timeline import JVM
from lab.bench.transform import BUILT_IN_AVRO, EOS_AVRO, FUNCTION, SQL, transform
from lab.bench.watched import cost_of_looking
from lab.bench.with_table import BOTH, TOPIC, cost_of_a_table
from lab.jars import avro
from spark_kafka_eos.testing.jars import files

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHAPE = Shape(records=1_000)
EVERYBODY = set(Against)
CLIENTS = {Against.BUILTIN, Against.LIBRDKAFKA}


@pytest.fixture(scope="module")
def lab(kafka):
    with Lab(kafka) as lab:
        yield lab


def names(found):
    return [series.name for series in found.series]


def test_the_source_takes_turns_with_the_built_in_one_and_librdkafka(lab, spark):
    found = spark_runs.source(lab, spark, SHAPE, batches=2, runs=1, against=CLIENTS)
    assert names(found) == [sides.EOS_SOURCE, sides.BUILT_IN, sides.BUILT_IN_DEFAULTS, sides.LIBRDKAFKA]


def test_the_batch_read_takes_turns_with_the_built_in_one(lab, spark):
    found = spark_runs.read(lab, spark, SHAPE, runs=1, defaults=False)
    assert names(found) == [sides.EOS_SOURCE, sides.BUILT_IN]


def test_the_sink_takes_turns_with_everybody(lab, spark):
    found = spark_runs.sink(lab, spark, SHAPE, runs=1, against=EVERYBODY)
    assert names(found) == [sides.EOS_SINK, "built-in", sides.RECIPE, sides.LIBRDKAFKA, sides.JAVA]


def test_the_copy_takes_turns_with_everybody(lab, spark):
    ours = (sides.EOS, sides.EOS_EXECUTORS, sides.EOS_SINK, sides.EOS_AT_LEAST_ONCE)
    found = spark_runs.copy(lab, spark, SHAPE, runs=1, against=EVERYBODY, defaults=False, ways=ours)
    assert names(found) == [*ours, sides.BUILT_IN, sides.RECIPE, sides.LIBRDKAFKA]


def test_several_topics_are_copied_to_the_same_number_of_topics(lab, spark):
    shape = Shape(records=100, topics=3, partitions=2, compression="lz4")
    found = spark_runs.copy(lab, spark, shape, runs=1, defaults=False, ways=(sides.EOS,))
    assert names(found) == [sides.EOS, sides.BUILT_IN]


def test_small_batches_have_triggers_transactions_and_end_to_end_latencies(lab, spark):
    found = latency(lab, spark, seconds=2, runs=1)
    assert names(found) == [sides.EOS, sides.EOS_SINK, sides.BUILT_IN]
    assert set(found.settings["end_to_end_ms"]) == set(names(found))
    assert 0 < found.settings["transaction_ms"][sides.EOS]["p50"] < 1_000 * found.named(sides.EOS).median


def test_the_cost_of_looking_is_that_of_pairs_of_runs(lab, spark):
    found = cost_of_looking(lab, spark, pairs=1, batches=2)
    assert names(found) == [side for name in (sides.EOS, sides.EOS_SINK) for side in (name, f"{name}, watched")]
    for name in (sides.EOS, sides.EOS_SINK):
        ratio = found.named(f"{name}, watched").median / found.named(name).median
        assert found.settings["cost_percent"][name]["median"] == pytest.approx(100 * (ratio - 1))


def test_the_cost_of_a_table_is_that_of_pairs_of_runs(lab, spark):
    found = cost_of_a_table(lab, spark, pairs=1, batches=2, records=10)
    assert names(found) == [TOPIC, BOTH]
    ratio = found.named(BOTH).median / found.named(TOPIC).median
    assert found.settings["cost_percent"][BOTH]["median"] == pytest.approx(100 * (ratio - 1))


def test_a_transform_in_arrow_takes_turns_with_from_avro(lab, spark):
    for jar in files(avro()):
        spark.sql(f"ADD JAR {jar}")
    found = transform(lab, spark, records=10_000, runs=1)
    assert names(found) == [FUNCTION, SQL, EOS_AVRO, BUILT_IN_AVRO]
    assert all(used > 0 for (used,) in found.settings["cpu_seconds"].values())


def test_a_trigger_waits_for_the_store_in_which_its_checkpoint_is(lab, spark):
    found = checkpoint(lab, spark, sizes=(100,), batches=4, runs=1, milliseconds=500)
    stored, local, lost, *built_in = (found.line(name)[0].value for name in found.lines)
    assert stored > local + 500
    assert built_in[0] > built_in[1] + 500
    assert lost < stored - 500


def test_memory_is_watched_while_the_batch_grows(lab, spark):
    for found in memory(lab, spark, Shape(records=3_200), ["arrow"]):
        assert [point.at for point in found.line(sides.EOS_ARROW)] == [400, 800, 1_600, 3_200]
        assert all(10 < point.value < 1_000 for point in found.line(sides.EOS_ARROW))


def test_memory_is_watched_on_every_path_and_in_a_query_of_many_batches(lab, spark):
    shape = mixed(40_000)
    for found in memory(lab, spark, shape):
        assert len(found.lines) == len(WAYS)
    found = long_stream(lab, spark, shape, 10)
    assert [point.at for point in found.line(HEAP)][:10] == list(range(1, 11))  # a rest may make one more
    assert all(10 < point.value < 1_000 for point in found.points)


@pytest.mark.timeout(900)
def test_each_way_takes_turns_with_rows_that_are_ready_made_and_dropped(lab):
    load = Load(rows=100, batches=2, records=Shape(records=0))
    found = dict(floor(lab, "100", load, rounds=1))
    assert [names(each) for each in found.values()] == [[OURS, BUILT_IN, READY_MADE, RELAYED]] * 4
    (table,) = grids(found)
    assert len(table.rows) == 4


def test_a_fresh_sessions_first_batch_is_beside_that_of_a_source_and_a_sink_that_do_nothing(lab):
    load = Load(rows=100, batches=2, records=Shape(records=0))
    name, found = first_batches(lab, Way.SINK, load, rounds=1)
    assert names(found) == [OURS, BUILT_IN, NOTHING]
    (table,) = grids({name: found})
    assert all(0 < float(seconds) < 60 for seconds in table.rows[0][1:4])


@pytest.mark.timeout(900)
def test_a_fresh_session_is_measured_to_its_first_commit_and_to_the_first_record_that_is_seen(lab):
    found = list(starts(lab, [Way.SINK], [Where.STANDALONE], rows=100, rounds=1))
    assert [names(each) for each in found] == [[OURS, BUILT_IN]] * 3
    (row,) = start_table(found).rows
    assert row[0] == f"{Way.SINK.words}: {Where.STANDALONE.words}"
    assert all(0 < float(row[column]) < 300 for column in (1, 2, 4, 5, 7, 8))


def test_the_timeline_of_a_fresh_start_has_each_process_with_its_imports_and_requests(lab):
    start = fresh_start.measure(lab, Way.SINK, rows=100)
    by_role = {process.role: process for process in start.processes}
    planned, written = by_role["python_streaming_source_runner"], by_role["write_into_data_source"]
    assert 0 < start.session < planned.start < written.start < start.committed
    assert {"ListOffsets"} <= set(planned.requests)
    assert {"DescribeConfigs"} <= set(written.requests)
    assert written.imports["ours"] > 0
    built_in = fresh_start.measure(lab, Way.SINK, rows=100, ours=False)
    assert {process.role for process in built_in.processes} <= {JVM, "driver", "daemon of worker", "worker"}
    assert built_in.requests == 0


def test_the_memory_of_all_processes_is_that_of_a_copy_and_the_built_in_connectors(lab):
    found = footprint(lab, Shape(records=2_000), [Way.SINK])
    ours, theirs = (found.settings["peak_mb"][name] for name in names(found))
    for figures in (ours, theirs):
        assert figures[TOGETHER] == pytest.approx(
            sum(figures[role] for role in figures if role not in (TOGETHER, NEW_PAGES))
        )
        assert 100 < figures[JVM] < figures[TOGETHER] < 3_000
        assert figures[NEW_PAGES] > 0
    assert "Python, tasks" in ours


def test_copies_in_real_time_take_turns_with_kafka_streams_and_sparks_own_modes(lab):
    load = Flow(rate=50, seconds=1, warm_up=1)
    found = real_time(lab, [load], list(Copy), rounds=1)
    assert found.lines == tuple(f"{panel}, {TITLES[copy]}" for panel in found.panels for copy in Copy)
    assert all(point.value > 0 for point in found.points)
    assert found.settings["repeated"][f"{Copy.REAL_TIME}, 50 records/s"] == 0


def test_copies_of_a_backlog_take_turns(lab):
    copies = [Copy.REAL_TIME, Copy.MICRO_BATCHES]
    assert names(backlog(lab, copies, records=20_000, rounds=1)) == [TITLES[copy] for copy in copies]
