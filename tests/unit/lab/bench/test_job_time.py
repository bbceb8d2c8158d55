"""How long a job takes: the cost of records and bytes from what was measured, and the table."""

import pytest

from lab.bench.figures import Comparison, Series
from lab.bench.job_time import WAYS, Cost, cost, in_words, job_times
from lab.bench.picture import THEMES, draw, panels
from lab.bench.steady_figures import BUILT_IN, LAUNCHED_PYTHON, OURS, first_batch_name

# Of each side: seconds of a record, seconds of a byte.
COSTS = {OURS: (1e-6, 2e-9), BUILT_IN: (2e-6, 3e-9)}


def micro_batch(way, rows, value_bytes):
    cpu = {name: [0.2 + rows * (record + byte * (8 + value_bytes))] for name, (record, byte) in COSTS.items()}
    settings = {
        "way": way,
        "rows": rows,
        "value_bytes": value_bytes,
        "values": f"{value_bytes:,} bytes",
        "cpu_seconds": cpu,
        "idle": {name: [0.2] for name in COSTS},
    }
    return Comparison(title="t", series=series(0.3, 0.4, rows), settings=settings)


def series(ours, theirs, rows=1_000):
    return tuple(Series(name=name, records=rows, seconds=(took,)) for name, took in ((OURS, ours), (BUILT_IN, theirs)))


def first(way, *, launched):
    settings = {"way": way, "rows": 1_000, "value_bytes": 100, "values": "100 bytes", "python": LAUNCHED_PYTHON}
    return Comparison(title="t", series=series(2.0 if launched else 5.8, 2.3), settings=settings)


@pytest.fixture
def results():
    loads = {"1k": (1_000, 100), "100k": (100_000, 100), "500k": (500_000, 100), "1kb": (100_000, 1_000)}
    found = {f"steady-{load}-{way}": micro_batch(way, *size) for load, size in loads.items() for way in WAYS}
    return found | {
        first_batch_name(way, launched=launched): first(way, launched=launched)
        for way in WAYS
        for launched in (False, True)
    }


def test_a_record_and_a_byte_cost_what_explains_the_three_measurements(results):
    few, many, larger = (results[f"steady-{load}-sink"] for load in ("100k", "500k", "1kb"))
    for name, (record, byte) in COSTS.items():
        found = cost(few, many, larger, results["first-batch-launched-sink"], name)
        assert (found.per_record, found.per_byte, found.busy) == pytest.approx((record, byte, 0.8))
    assert found.start == 2.3


def test_the_time_is_the_start_and_the_cpu_time_over_the_busy_cores():
    job = Cost(start=2.0, per_record=1e-6, per_byte=1e-9, busy=0.5)
    assert job.seconds(1_000_000, 992, 4) == pytest.approx(2 + (1 + 1) / (4 * 0.5))


def test_more_cores_do_not_help_where_one_process_appends():
    job = Cost(start=2.0, per_record=1e-6, per_byte=0.0, busy=1.0)
    assert job.seconds(1_000_000, 992, 1000, most_bytes=1e8) == pytest.approx(2 + 10)
    assert job.seconds(1_000_000, 992, 1, most_bytes=1e12) == pytest.approx(2 + 1)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (3600, "60 min"),
        (7_200, "2.0 h"),
        (1e6, "278 h"),
    ],
)
def test_times_are_in_the_unit_that_people_would_use(seconds, words):
    assert in_words(seconds) == words


def test_the_table_has_each_way_with_both_sides_by_cores(results):
    grid, _ = job_times(results)
    assert grid.headings == ("ours / built-in", "2 cores", "8 cores", "32 cores")
    assert grid.rows[0] == (
        "1 million × 100 bytes, copy, format's sink",
        "2.8 s / 3.8 s",
        "2.2 s / 2.7 s",
        "2.2 s / 2.4 s",
    )
    assert len(grid.rows) == 3 * 2 * len(WAYS)


def test_the_second_table_has_what_the_first_one_is_calculated_from(results):
    _, grid = job_times(results)
    assert grid.rows[0] == ("copy, format's sink", "1.00 / 2.00", "2.0 / 3.0", "80% / 80%", "2.0 / 2.3")
    assert [row[0] for row in grid.rows] == [way.words for way in WAYS]


def test_without_one_of_the_measurements_there_are_no_tables_and_no_picture(results):
    for name in ("steady-500k-sink", "first-batch-launched-sink"):
        some = {key: measured for key, measured in results.items() if key != name}
        assert job_times(some) == []
        assert panels(some) is None


def test_the_picture_has_start_and_steady_state_for_both_kinds_of_pages(results, tmp_path):
    shown = panels(results)
    assert shown is not None
    start, steady = shown
    assert start.values == {"nothing set": (5.8, 2.3), "recommended": (2.0, 2.3)}
    assert list(steady.values) == [
        "sink, 1,000 records",
        "sink, 100,000 records",
        "sink, 500,000 records",
        "arrow_stream, 100,000 records",
        "arrow_stream, 500,000 records",
    ]
    assert steady.values["sink, 1,000 records"] == (300.0, 400.0)
    for path, theme in zip(draw(shown, tmp_path), THEMES, strict=True):
        assert path.read_text().count(theme.ours) >= 7  # its bars
