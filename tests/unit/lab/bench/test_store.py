"""Measurements survive the way through their files, and can be shown and drawn."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from lab.bench import plots, show, store
from lab.bench.figures import Comparison, Point, Series, Sweep
from lab.bench.machine import cpu_model, machine
from lab.bench.targets import TargetRow

COMPARISON = Comparison(
    title="source to noop",
    series=(
        Series(name="kafka-eos", records=10, seconds=(1.0, 2.0, 4.0)),
        Series(name="built-in", records=10, seconds=(6.0, 6.0, 6.0)),
    ),
    settings={"records": 10, "transaction_ms": {"kafka-eos": {"p50": 7.25}}},
)
SWEEP = Sweep(
    title="memory",
    x="records",
    y="MB",
    points=(Point(line="a", at=1, value=5.0), Point(line="a", at=10, value=6.5), Point(line="b", at=1, value=7.0)),
)
PANELS = Sweep(
    title="producing",
    x="bytes",
    y="MB/s",
    points=(
        Point.of("a, plain", 100, [512.0, 498.0, 530.0]),
        Point.of("a, idempotent", 100, [520.0, 526.0, 522.0]),
        Point.of("a, transactions", 100, [312.0, 318.0, 322.0]),
        Point.of("b, plain", 100, [9.5, 9.25, 11.0]),
    ),
    settings={"runs": 3, "kafka": "3.9.1"},
    panels=("a", "b"),
    alternatives=True,
)


@pytest.mark.parametrize("measured", [COMPARISON, SWEEP], ids=["comparison", "sweep"])
def test_what_was_written_is_read_again_with_its_machine(tmp_path, measured):
    here = machine()
    store.write(tmp_path / "a.json", measured, here)
    assert store.read(tmp_path / "a.json") == (measured, here)


def test_the_release_that_was_measured_is_stored_not_the_default_one(tmp_path):
    store.write(tmp_path / "a.json", PANELS, machine())
    read, here = store.read(tmp_path / "a.json")
    assert (read, here.versions["Kafka"]) == (PANELS, "3.9.1")


@pytest.mark.parametrize("measured", [COMPARISON, SWEEP, PANELS], ids=["comparison", "sweep", "panels"])
def test_a_plot_is_a_png(tmp_path, measured):
    plots.plot(measured, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_plot_of_ratios_is_a_png_too(tmp_path):
    plots.ratios("t", {"source": {"lz4": 2.0, "zstd": 1.5}, "copy": {"zstd": 3.0}}, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def shown(table):
    text = io.StringIO()
    Console(width=160, file=text).print(table)
    return text.getvalue()


def test_a_comparison_shows_medians_spread_and_how_much_longer_others_take():
    text = shown(show.measured(COMPARISON))
    assert [cell in text for cell in ("2.000", "150%", "3.00 ×")] == [True] * 3
    assert list(show.details(COMPARISON)) == ["transaction_ms, kafka-eos: p50 7.2"]


def test_a_sweep_shows_a_column_for_each_place():
    text = shown(show.measured(SWEEP))
    assert [cell in text for cell in ("6.5", "10", "7.0")] == [True] * 3
    assert list(show.details(SWEEP)) == []


def test_a_sweep_is_a_markdown_table_with_its_quartiles_and_with_what_is_equal_in_the_page_that_has_a_place_for_it():
    here = machine().running("3.9.1")
    page = "<!-- produce: begin -->\n<!-- produce: end -->\n"
    filled = show.insert_sweeps(page, {"produce": (PANELS, here), "other": (SWEEP, here)})
    assert filled.splitlines()[1:7] == [
        "| MB/s, by bytes | 100 |",
        "| --- | ---: |",
        "| a, plain | 512 (505-521) |",
        "| a, idempotent | = 522 (521-524) |",
        "| a, transactions | 318 (315-320) |",
        "| b, plain | 9.50 (9.38-10.25) |",
    ]
    assert "of 3 runs" in filled and "Kafka 3.9.1" in filled
    assert "2 pairs of a client's rows that are distinguishable in a column, 2 have the" in filled


def test_rows_that_are_no_alternatives_are_not_compared():
    text = show.sweep_markdown(replace(PANELS, alternatives=False), machine())
    assert "=" not in text and "first and in the second half" not in text


def test_the_table_of_targets_is_shown_and_is_markdown():
    rows = [TargetRow(what="source", target="≥ 1.5 ×", measured="1.40 ×", holds=False)]
    assert "missed" in shown(show.targets(rows))
    text = show.markdown(rows, machine())
    assert text.splitlines()[2] == "| source | ≥ 1.5 × | 1.40 × | missed |"
    assert "pyspark" in text.splitlines()[-1]


def test_the_cpu_is_named_as_linux_names_it():
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n") == "Some CPU @ 3 GHz"
    assert cpu_model("Features : fp asimd\n") == ""


def test_a_page_takes_the_table_between_its_marks_again_and_again():
    page = "# P\n<!-- targets: begin -->\nold\n<!-- targets: end -->\nrest\n"
    once = show.insert(page, "targets", "| new |\n")
    assert once == "# P\n<!-- targets: begin -->\n| new |\n<!-- targets: end -->\nrest\n"
    assert show.insert(once, "targets", "| new |\n") == once
    with pytest.raises(ValueError, match="has no"):
        show.insert("# P\n", "targets", "| new |\n")
