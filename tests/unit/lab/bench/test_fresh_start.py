"""A fresh start: from what its processes log and samples of CPU clocks to a timeline; and the tables of starts."""

import subprocess
import sys
from collections import Counter

import pytest

from lab.bench import process_log
from lab.bench.figures import Comparison, Series
from lab.bench.footprint import Footprint
from lab.bench.fresh_start import FreshStart, Logged, bar, by_group, logged, parse, processes_of, role_of
from lab.bench.start_figures import COMMIT, NEW_PAGES, PROGRAM, TOGETHER, VISIBLE, footprints, starts
from lab.bench.steady_figures import BUILT_IN, OURS
from lab.bench.timeline import JVM, Watched

LOG = """start\t7\t100.0\tpython\t-m\tpyspark.daemon\tpyspark.sql.worker.lookup_data_sources
import\t7\t100.2\tpyspark.daemon\t0.2\t0.15
fork\t8\t100.3\t7
import\t8\t100.4\tspark_kafka_eos.options\t0.03\t0.02
request\t8\t100.5\tMetadata\t0.01
request\t8\t100.6\tMetadata\t0.02
request\t8\t109.0\tProduce\t0.5
""".splitlines()


@pytest.mark.parametrize(
    ("arguments", "role"),
    [
        ("python -m pyspark.daemon pyspark.worker", "daemon of worker"),
        ("python -m pyspark.daemon pyspark.sql.worker.plan_data_source_read", "daemon of plan_data_source_read"),
        (
            "python -m pyspark.sql.streaming.python_streaming_source_runner pyspark.sql.streaming.x",
            "python_streaming_source_runner",
        ),
        ("python -c from multiprocessing.spawn import spawn_main", "driver"),
        ("/opt/bin/python3 -c print('%d.%d')", "python3 -c"),
    ],
)
def test_a_python_process_is_the_module_that_it_runs(arguments, role):
    assert role_of(arguments.split(" ", 3)) == role


def test_what_was_logged_before_the_first_commit_counts_for_its_process():
    assert parse(LOG, until=105.0) == {
        7: Logged(role="daemon of lookup_data_sources", since=100.0, imports={"pyspark.daemon": 0.15}),
        8: Logged(
            role="lookup_data_sources",
            since=100.3,
            imports={"spark_kafka_eos.options": 0.02},
            requests=Counter(Metadata=2),
            request_seconds=0.03,
        ),
    }


def test_imports_count_for_the_package_that_takes_the_time():
    seconds = by_group({"pyspark.sql": 1.0, "py4j": 0.5, "numpy.core": 2.0, "pyspark_kafka_eos": 0.1, "json": 0.2})
    assert seconds == {"PySpark": 1.5, "Arrow": 2.0, "ours": 0.1, "others": 0.2}


def test_a_process_ends_where_it_has_used_its_cpu_time_up_to_the_commit():
    worker = Watched("Python", [(100.3, 0.0), (100.5, 0.2), (103.0, 0.201), (106.0, 0.9)], pid=8, started=100.3)
    jvm = Watched(JVM, [(99.0, 0.0), (105.0, 4.0)], pid=5, started=99.0)
    other = Watched("others", [(100.0, 0.0)], pid=9, started=100.0)
    first, second = processes_of(parse(LOG, 105.0), [worker, other, jvm], 98.0, 105.0)
    assert (first.role, first.start, first.end, first.cpu) == (JVM, 1.0, 7.0, 4.0)
    assert (second.role, second.start, second.end, second.cpu) == pytest.approx(
        ("lookup_data_sources", 2.3, 2.5, 0.201)
    )
    start = FreshStart(title="a copy", session=1.5, committed=7.0, processes=[first, second])
    assert start.requests == 2
    assert start.table().row_count == 2
    assert list(start.lines()) == ["lookup_data_sources: spark_kafka_eos.options 20 ms; 2 Metadata"]
    assert bar(0.0, 3.5, 7.0).strip("█") == ""
    assert len(bar(3.5, 7.0, 7.0)) == len(bar(0.0, 7.0, 7.0))


def test_a_process_and_what_is_forked_from_it_log_each_import_once(tmp_path, monkeypatch):
    for name, value in logged(tmp_path).items():
        monkeypatch.setenv(name, value)
    code = "import os, wave, wave\nif os.fork() == 0:\n import colorsys\n os._exit(0)\nos.wait()"
    subprocess.run([sys.executable, "-c", code], check=True)
    parent, child = parse((tmp_path / "log").read_text().splitlines(), until=float("inf")).values()
    assert parent.imports["wave"] > 0
    assert list(child.imports) == ["colorsys"]


def test_nothing_is_logged_where_no_file_is_named(monkeypatch):
    monkeypatch.delenv(process_log.VARIABLE, raising=False)
    before = sys.modules["_frozen_importlib"]._find_and_load
    process_log.begin()
    assert sys.modules["_frozen_importlib"]._find_and_load is before


def measured(moment: str, ours: tuple[float, ...], theirs: tuple[float, ...], **settings) -> Comparison:
    series = (Series(name=OURS, records=1, seconds=ours), Series(name=BUILT_IN, records=1, seconds=theirs))
    return Comparison(title=moment, series=series, settings={"way": "sink", "moment": moment, **settings})


def test_starts_have_a_row_for_each_way_and_place_and_say_how_many_times_as_long_ours_takes():
    results = [
        measured(moment, ours, (4.0, 5.0), where="local", rows=10)
        for moment, ours in ((PROGRAM, (8.0, 10.0)), (COMMIT, (6.0, 5.0)), (VISIBLE, (6.0, 5.0)))
    ]
    results.append(measured(COMMIT, (6.0, 5.0), (4.0, 5.0), where="standalone", rows=10))
    table = starts(results)
    expected = *("4.5", "5.5", "1.25 × (1.00-1.50)") * 2, "4.5", "9.0", "2.00 × (2.00-2.00)"
    assert table.rows[0] == ("copy, format's sink: local[2]", *expected)
    assert table.rows[1][0] == "copy, format's sink: standalone cluster, two workers"
    assert len(table.headings) == len(table.rows[0])
    assert table.rounds == 2


def test_the_highest_memory_is_that_of_all_processes_at_one_moment():
    footprint = Footprint()
    for sample in ({JVM: 600, "Python, tasks": 100}, {JVM: 300, "Python, tasks": 500}, {JVM: 700}):
        footprint.add({role: size * 10**6 for role, size in sample.items()})
    assert footprint.megabytes == {TOGETHER: 800, JVM: 300, "Python, tasks": 500, NEW_PAGES: 0}


def test_memory_has_a_row_for_each_side_with_its_ratio_to_the_built_in_connector():
    peaks = {
        OURS: {TOGETHER: 1_500.0, JVM: 900.0, "Python, tasks": 600.0, NEW_PAGES: 4_000.0},
        BUILT_IN: {TOGETHER: 1_000.0, JVM: 1_000.0, NEW_PAGES: 2_000.0},
    }
    shape = {"records": 1_000, "value_bytes": 100, "partitions": 1_000}
    table = footprints([measured("", (1.0,), (1.0,), peak_mb=peaks, **shape)])
    assert table.headings == ("MB at the peak", TOGETHER, "of built-in's", JVM, "Python, tasks", NEW_PAGES)
    assert table.rows[0] == (
        f"1,000 × 100 bytes, 1,000 partitions: {OURS}",
        "1,500",
        "1.50 ×",
        "900",
        "600",
        "4,000",
    )
    assert table.rows[1][2:5] == ("1.00 ×", "1,000", "")
