"""Steady state: which micro-batches count, ratios of pairs, the line of CPU time, and the tables."""

import pyarrow as pa
import pytest

from lab.bench import ready_made, show
from lab.bench.figures import Comparison, Series
from lab.bench.machine import machine
from lab.bench.steady_figures import (
    BUILT_IN,
    LAUNCHED_PYTHON,
    NOTHING,
    OURS,
    OURS_SCHEMA,
    PLAIN_SETTINGS,
    READY_MADE,
    RELAYED,
    Ratio,
    Used,
    counted,
    cpu_line,
    grids,
    paired,
    setting_side,
    trigger_seconds,
)
from lab.bench.targets import table
from spark_kafka_eos.errors import ToolFailed


def batch(rows, milliseconds):
    return {"numInputRows": rows, "durationMs": {"triggerExecution": milliseconds, "addBatch": milliseconds - 10}}


def compared(seconds, *, way="noop", rows=100_000, values="100 bytes", cpu=None, first=(0.5,), python=PLAIN_SETTINGS):
    names = list(seconds)
    settings = {
        "way": way,
        "rows": rows,
        "values": values,
        "value_bytes": 100,
        "cpu_seconds": cpu or {name: [0.4] for name in names},
        "idle": {name: [0.25, 0.35] for name in names},
        "first_batch_seconds": {name: list(first) for name in names},
        "python": python,
    }
    series = tuple(Series(name=name, records=rows, seconds=tuple(took)) for name, took in seconds.items())
    return Comparison(title="t", series=series, settings=settings)


def side_by_side(ours, schema, built_in, **changes):
    return compared({OURS: [ours], OURS_SCHEMA: [schema], BUILT_IN: [built_in]}, **changes)


def test_the_first_three_batches_and_the_partial_last_one_do_not_count():
    progress = [batch(1_000, ms) for ms in (900, 500, 400, 100, 140, 120)] + [batch(500, 10), batch(0, 1)]
    assert [phases["triggerExecution"] for phases in counted(progress, 1_000)] == [100, 140, 120]
    assert trigger_seconds(progress, 1_000) == pytest.approx(0.12)


def test_a_batch_counts_as_full_although_spark_rounds_the_shares_of_partitions():
    progress = [batch(rows, 100) for rows in (1_000, 997, 1_002, 996, 998)]
    assert len(counted(progress, 1_000)) == 2


def test_a_query_without_a_batch_that_counts_is_refused():
    with pytest.raises(ToolFailed, match="only 3 micro-batches of 1,000 records"):
        counted([batch(1_000, 100)] * 3 + [batch(400, 50)], 1_000)


def test_the_ratio_is_that_of_pairs_so_that_a_slow_round_changes_it_little():
    ours = Series(name=OURS, records=1, seconds=(1.0, 10.0, 2.0))
    theirs = Series(name=BUILT_IN, records=1, seconds=(1.5, 14.0, 4.0))
    assert paired(ours, theirs) == Ratio(median=1.5, low=1.4, high=2.0)
    assert str(paired(ours, theirs)) == "1.50 × (1.40-2.00)"


def test_cpu_time_is_a_fixed_part_and_one_for_each_million_rows():
    found = cpu_line((100_000, 0.3), (500_000, 0.7))
    assert found.fixed == pytest.approx(0.2)
    assert found.per_million == pytest.approx(1.0)


def test_idle_is_a_share_of_all_cores():
    assert Used(wall=10.0, cpu=12.0, idle=5.0, cores=2).idle_share == 0.25


def test_tables_show_each_load_with_its_ratio_and_the_line_through_the_two_largest():
    cpu = {
        rows: {OURS: [cost], OURS_SCHEMA: [cost], BUILT_IN: [2 * cost]}
        for rows, cost in ((100_000, 0.3), (500_000, 0.7))
    }
    found = {
        "steady-500k-noop": side_by_side(0.5, 0.4, 1.0, rows=500_000, cpu=cpu[500_000]),
        "steady-100k-noop": side_by_side(0.2, 0.1, 0.3, cpu=cpu[100_000]),
        "steady-mixed-noop": side_by_side(0.2, 0.1, 0.3, values="mixed"),
    }
    triggers, costs = grids(found)
    assert [row[0] for row in triggers.rows] == [
        "source → noop: 100,000 × 100 bytes",
        "source → noop: 100,000 × mixed",
        "source → noop: 500,000 × 100 bytes",
    ]
    assert triggers.rows[0][1:] == ("300", "200", "1.50 × (1.50-1.50)", "100", "3.00 × (3.00-3.00)", "30% / 30% / 30%")
    assert costs.rows == (("source → noop: 100 bytes", "2.0", "1.0", "1.0", "400", "200", "200"),)


def test_arrow_stream_has_its_line_although_it_has_no_side_with_a_schema():
    found = {
        f"steady-{rows}-arrow": compared(
            {OURS: [0.1], BUILT_IN: [0.2]}, way="arrow", rows=rows, cpu={OURS: [cost], BUILT_IN: [2 * cost]}
        )
        for rows, cost in ((100_000, 0.3), (500_000, 0.7))
    }
    _, costs = grids(found)
    assert costs.rows == (("copy, arrow_stream: 100 bytes", "2.0", "1.0", "", "400", "200", ""),)


def test_first_batches_of_fresh_and_warm_sessions_are_side_by_side():
    fresh = compared({OURS: [5.0, 7.0, 6.0], BUILT_IN: [4.0, 4.0, 4.0]})
    steady = side_by_side(0.2, 0.1, 0.3, first=[1.9])
    _, grid = grids({"first-batch-noop": fresh, "steady-100k-noop": steady})
    assert grid.rows == (("source → noop: 100,000 × 100 bytes, plain settings", "4.0", "6.0", "1.9", "1.9"),)
    assert grid.rounds == 3


def test_a_warm_session_with_plain_settings_is_not_beside_a_fresh_one_with_kafka_eos_python():
    fresh = compared({OURS: [2.0], BUILT_IN: [2.3]}, python=LAUNCHED_PYTHON)
    _, grid = grids({"first-batch-launched-noop": fresh, "steady-100k-noop": side_by_side(0.2, 0.1, 0.3)})
    assert grid.rows == (("source → noop: 100,000 × 100 bytes, kafka-eos-python", "2.3", "2.0", "", ""),)


def test_what_a_source_and_a_sink_take_that_do_nothing_is_beside_a_fresh_session():
    fresh = {
        "first-batch-noop": compared({OURS: [5.6], BUILT_IN: [2.3], NOTHING: [5.5]}),
        "first-batch-launched-noop": compared({OURS: [2.0], BUILT_IN: [2.3]}, python=LAUNCHED_PYTHON),
    }
    grid = grids(fresh)[-1]
    assert grid.rows == (
        ("source → noop: 100,000 × 100 bytes, plain settings", "2.3", "5.6", "5.5", "", ""),
        ("source → noop: 100,000 × 100 bytes, kafka-eos-python", "2.3", "2.0", "", "", ""),
    )
    assert len(grid.headings) == len(grid.rows[0])


@pytest.mark.parametrize("turn", [1, -1])
def test_plain_settings_are_above_kafka_eos_python_in_whatever_order_the_files_are_read(turn):
    fresh = {
        "first-batch-noop": compared({OURS: [5.0], BUILT_IN: [4.0]}),
        "first-batch-launched-noop": compared({OURS: [2.0], BUILT_IN: [2.3]}, python=LAUNCHED_PYTHON),
    }
    (grid,) = grids(dict(list(fresh.items())[::turn]))
    assert [row[0].rpartition(", ")[2] for row in grid.rows] == [PLAIN_SETTINGS, LAUNCHED_PYTHON]


def test_each_setting_is_compared_with_plain_ones_and_schema_has_no_built_in_side():
    seconds = {
        setting_side(OURS, PLAIN_SETTINGS): [0.4],
        setting_side(BUILT_IN, PLAIN_SETTINGS): [0.3],
        setting_side(OURS, "sockets"): [0.2],
        setting_side(BUILT_IN, "sockets"): [0.3],
        setting_side(OURS, "schema(…)"): [0.1],
    }
    (grid,) = grids({"settings-sink": compared(seconds, way="sink")})
    assert grid.rows == (
        ("copy, format's sink: plain settings", "300", "", "400", "", "0.5"),
        ("copy, format's sink: sockets", "300", "1.00 × (1.00-1.00)", "200", "2.00 × (2.00-2.00)", "0.5"),
        ("copy, format's sink: schema(…)", "", "", "100", "4.00 × (4.00-4.00)", "0.5"),
    )


def test_what_is_left_without_our_own_work_is_beside_both_connectors():
    (grid,) = grids({"floor-1kb-sink": compared({OURS: [0.5], BUILT_IN: [0.6], READY_MADE: [0.3]}, way="sink")})
    assert grid.rows[0][1:] == ("600", "500", "1.20 × (1.20-1.20)", "300", "2.00 × (2.00-2.00)")


def test_so_is_what_the_brokers_need_where_it_was_measured():
    sides = {OURS: [0.5], BUILT_IN: [0.6], READY_MADE: [0.3], RELAYED: [0.4]}
    (grid,) = grids({"floor-1kb-sink": compared(sides, way="sink")})
    assert grid.rows[0][4:] == ("300", "2.00 × (2.00-2.00)", "400", "1.50 × (1.50-1.50)")
    assert len(grid.headings) == len(grid.rows[0])


def test_a_table_is_put_into_the_page_that_has_a_place_for_it():
    page = "<!-- steady: begin -->\n<!-- steady: end -->\n"
    filled = show.insert_grids(page, {"steady-100k-noop": (side_by_side(0.2, 0.1, 0.3), machine())})
    assert filled.splitlines()[1].startswith("| ms of a trigger | built-in | ours |")
    assert filled.splitlines()[3].startswith("| source → noop: 100,000 × 100 bytes | 300 | 200 |")
    assert "One round; " in filled
    assert show.insert_grids("no place", {"steady-100k-noop": (side_by_side(0.2, 0.1, 0.3), machine())}) == "no place"


@pytest.mark.parametrize(
    ("key", "way", "verdict"),
    [
        ("100k", "noop", "met"),
        ("500k", "noop", "missed"),
        ("100k", "sink", "met"),
        ("500k", "sink", "missed"),
    ],
)
def test_steady_state_is_judged_by_way_and_rows(key, way, verdict):
    row = table({f"steady-{key}-{way}": side_by_side(0.2, 0.17, 0.31, way=way)})[0]
    assert row.verdict == verdict
    assert row.measured == "1.55 × (1.55-1.55), 1.82 × (1.82-1.82); 200, 170 against 310 ms"


def test_arrow_stream_has_a_target_of_its_own():
    row = table({"steady-100k-arrow": compared({OURS: [0.15], BUILT_IN: [0.31]}, way="arrow")})[0]
    assert (row.target, row.measured, row.verdict) == ("≥ 2 ×", "2.07 × (2.07-2.07); 150 against 310 ms", "met")


@pytest.mark.parametrize(
    ("least", "most", "verdict"),
    [
        ({READY_MADE: [0.2]}, "1.55", "missed"),
        ({READY_MADE: [0.22]}, "1.41", "missed, out of reach"),
        ({READY_MADE: [0.1], RELAYED: [0.22]}, "1.41", "missed, out of reach"),
    ],
)
def test_a_target_is_out_of_reach_that_would_be_missed_if_our_own_work_took_no_time(least, most, verdict):
    floor_ = compared({OURS: [0.25], BUILT_IN: [0.31]} | least)
    row = table({"steady-100k-noop": side_by_side(0.25, 0.25, 0.31), "floor-100k-noop": floor_})[0]
    assert (row.measured.rpartition("; ")[2], row.verdict) == (f"at most {most} ×", verdict)


def test_steady_state_has_to_reach_both_ratios():
    row = table({"steady-100k-noop": side_by_side(0.2, 0.2, 0.31)})[0]
    assert (row.target, row.verdict) == ("≥ 1.5 ×, with schema(…) ≥ 1.7 ×", "missed")


def test_a_load_that_was_measured_without_schema_has_no_such_cells():
    measured = compared({OURS: [0.2], BUILT_IN: [0.31]}, way="sink", rows=10_000, values="10,000 bytes")
    (grid,) = grids({"steady-10kb-sink": measured})
    assert grid.rows[0][1:] == ("310", "200", "1.55 × (1.55-1.55)", "", "", "30% / 30%")
    row = table({"steady-10kb-sink": measured})[0]
    assert (row.target, row.verdict) == ("≥ 1.5 ×", "met")


def test_a_first_batch_may_take_six_tenths_of_a_second_longer_and_three_seconds_with_nothing_set():
    rows = table(
        {
            "first-batch-sink": compared({OURS: [4.0], BUILT_IN: [1.0]}, way="sink"),
            "first-batch-launched-sink": compared({OURS: [1.65], BUILT_IN: [1.0]}, way="sink", python=LAUNCHED_PYTHON),
            "steady-100k-sink": side_by_side(0.1, 0.1, 0.3, way="sink", first=[2.0]),
        }
    )
    first = [row for row in rows if row.what.startswith("first batch")]
    assert [(row.target, row.measured, row.verdict) for row in first] == [
        ("≤ built-in + 3 s", "4.00 s against 1.00 s", "met"),
        ("≤ built-in + 0.6 s", "1.65 s against 1.00 s", "missed"),
        ("≤ built-in + 0.6 s", "2.00 s against 2.00 s", "met"),
    ]


@pytest.mark.parametrize(("nothing", "verdict"), [(3.9, "missed"), (4.1, "missed, out of reach")])
def test_a_first_batch_is_out_of_reach_that_spark_cannot_have_in_time_with_any_source_in_python(nothing, verdict):
    row = table({"first-batch-sink": compared({OURS: [4.2], BUILT_IN: [1.0], NOTHING: [nothing]}, way="sink")})[0]
    assert (row.measured, row.verdict) == (f"4.20 s against 1.00 s; in Python at least {nothing:.2f} s", verdict)


def test_ready_made_rows_are_those_that_were_read_first_as_many_as_are_wanted(monkeypatch):
    monkeypatch.setattr(ready_made, "_KEPT", [])
    first = [pa.record_batch({"n": [1, 2, 3]}), pa.record_batch({"n": [4, 5]})]
    assert [batch["n"].to_pylist() for batch in ready_made.again(5, lambda: iter(first))] == [[1, 2, 3], [4, 5]]
    later = [batch["n"].to_pylist() for batch in ready_made.again(7, lambda: pytest.fail("read again"))]
    assert later == [[1, 2, 3], [4, 5], [1, 2]]
    assert list(ready_made.again(0, lambda: pytest.fail("read again"))) == []


def test_without_any_row_nothing_is_repeated(monkeypatch):
    monkeypatch.setattr(ready_made, "_KEPT", [])
    assert list(ready_made.again(5, lambda: iter([]))) == []
