"""The table of targets: which verdict which figures get."""

import pytest

from lab.bench import codec, sides, transport
from lab.bench.figures import Comparison, Point, Series, Sweep
from lab.bench.targets import MEMORY, SHAPES, shape_ratios, table
from lab.bench.watched import cost


def comparison(_settings=None, **seconds):
    names = {
        "eos": sides.EOS,
        "sink": sides.EOS_SINK,
        "least": sides.EOS_AT_LEAST_ONCE,
        "ours": sides.EOS_SOURCE,
        "builtin": sides.BUILT_IN,
        "recipe": sides.RECIPE,
    }
    found = tuple(Series(name=names[name], records=2_000_000, seconds=(took,)) for name, took in seconds.items())
    return Comparison(title="t", series=found, settings=_settings or {})


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(1.0, "met, aim reached"), (1.1, "met"), (2.0, "met"), (2.1, "missed")]
)
def test_a_source_must_be_half_again_as_fast_and_aims_at_three_times(seconds, verdict):
    (row,) = table({"source-1": comparison(ours=seconds, builtin=3.0)})
    assert row.verdict == verdict
    assert f"{3 / seconds:.2f} ×" in row.measured


def test_the_copy_is_judged_against_the_built_in_one_the_recipe_and_at_least_once():
    rows = table({"copy-1": comparison(eos=2.0, sink=2.4, least=1.95, builtin=6.0, recipe=15.0)})
    assert [(row.target, row.verdict) for row in rows] == [
        ("≥ 1.5 × (aim 3 ×)", "met, aim reached"),
        ("≥ 8 ×", "missed"),
        ("≥ 1.2 × (aim 3 ×)", "met"),
        ("≥ 0.95 ×", "met"),
    ]


def test_a_side_that_did_not_take_part_has_no_row():
    rows = table({"copy-20": comparison(eos=2.0, sink=2.0, builtin=3.0)})
    assert len(rows) == 2


def test_small_batches_may_take_twice_as_long_and_their_transaction_15_ms():
    settings = {"transaction_ms": {sides.EOS: {"p50": 15.1}}}
    rows = table({"latency": comparison(settings, eos=0.19, sink=0.21, builtin=0.1)})
    assert [row.verdict for row in rows] == ["met", "missed", "missed"]


@pytest.mark.parametrize(("looked_at", "verdict"), [(1.01, "met"), (1.03, "missed"), (0.99, "met")])
def test_looking_may_cost_a_fiftieth(looked_at, verdict):
    settings = {"cost_percent": {sides.EOS: cost([1.0, 2.0, 1.0], [looked_at, 2.0 * looked_at, 9.0])}}
    (row,) = table({"watched": comparison(settings, eos=1.0)})
    assert (row.target, row.verdict) == ("≤ 2 %", verdict)
    assert row.measured.startswith(f"{100 * looked_at - 100:+.1f} %")


def test_the_codec_must_decode_small_batches():
    names = {codec.decode_small(count, one): 0.5 for count in codec.SMALL for one in ("none", "zstd")}
    found = [Series(name=name, records=1_000_000, seconds=(took,)) for name, took in names.items()]
    rows = table({"codec-small": Comparison(title="t", series=tuple(found))})
    assert [row.holds for row in rows] == [True, False, False]
    assert rows[0].measured == "2.0 M records/s (2.00 M with zstd)"


def test_the_codec_must_do_eight_million_records_a_second():
    names = {codec.ENCODE: 0.2, codec.DECODE: 0.3, codec.FLOOR: 0.1}
    found = tuple(Series(name=name, records=2_000_000, seconds=(took,)) for name, took in names.items())
    rows = table({"codec": Comparison(title="t", series=found)})
    assert [row.verdict for row in rows] == ["met", "missed"]
    assert "50% of memory copy" in rows[0].measured


def test_transport_is_judged_by_bytes_not_by_records():
    series = (Series(name=transport.WALL, records=10, seconds=(0.5,)),)
    (row,) = table({"transport": Comparison(title="t", series=series, settings={"bytes": 499_000_000})})
    assert row.verdict == "missed"


def test_every_other_shape_is_held_to_the_main_ones_ratios():
    found = {
        f"shape-{key}-{kind}": comparison(eos=2.0, ours=2.0, builtin=3.1)
        for key in SHAPES
        for kind in ("source", "copy")
    }
    rows = table(found)
    assert len(rows) == 2 * len(SHAPES) + 2
    assert all(row.holds for row in rows)


@pytest.mark.parametrize(("seconds", "holds"), [(8.0, True), (8.5, False)])
def test_eight_times_the_partitions_may_cost_eight_times_as_much(seconds, holds):
    few, many = comparison(ours=1.0), comparison(ours=seconds)
    (row,) = table({"shape-64-partitions-source": few, "shape-512-partitions-source": many})
    assert row.holds is holds


@pytest.mark.parametrize(("last", "holds"), [(220.0, True), (230.0, False)])
@pytest.mark.parametrize("key", [*MEMORY, "memory-stream"])
def test_memory_is_flat_when_twice_the_batch_takes_a_tenth_more_at_most_in_every_way(key, last, holds):
    sizes = (250, 499, 999)  # halves are rounded
    values = {
        "sink": zip(sizes, (150.0, 200.0, last), strict=True),
        "read": zip(sizes, (50.0, 90.0, 90.0), strict=True),
    }
    points = tuple(Point(line=line, at=at, value=value) for line, some in values.items() for at, value in some)
    (row,) = table({key: Sweep(title="t", x="x", y="y", points=points)})
    assert row.holds is holds
    assert row.measured.startswith(
        f"sink: {last:.0f} MB at 999 records, 200 MB at 499" if key in MEMORY else f"sink: {last:.0f} MB at 999 "
    )


def test_nothing_measured_is_an_empty_table():
    assert table({}) == ()


def test_the_plot_of_shapes_begins_with_the_main_one_and_leaves_out_what_was_not_measured():
    found = {"source-1": comparison(ours=1.0, builtin=3.0), "shape-lz4-source": comparison(ours=1.0, builtin=2.0)}
    assert shape_ratios(found) == {"source": {"100-byte values": 3.0, "lz4": 2.0}}
