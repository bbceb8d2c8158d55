"""The record of what was tested with what: made of reports of passed tests, and shown by its page."""

import json

import pytest

from tests.unit.ci.test_verdict import script

tested = script("tested")

OLD, NEW = "Spark 3.5.9, Kafka 3.3.2, Python 3.11", "Spark 4.10.0, Kafka 4.4.0, Python 3.12"


def report(folder, *cells, inside=""):
    properties = "".join(f'<property name="cell" value="{cell!r}"/>' for cell in cells)
    file = folder / "tests.xml"
    file.write_text(
        f'<testsuites><testsuite><testcase classname="tests.a" name="test_it"><properties>{properties}</properties>'
        f"{inside}</testcase></testsuite></testsuites>"
    )
    return file


def ran(folder, *cells):
    return tested.tables([report(folder, *cells)])


def test_cells_of_other_tables_are_left_out(tmp_path):
    found = ran(tmp_path, ("Spark releases", "sink", NEW, "ok"), ("Fault matrix", "cut", "TV2", "redone"))
    assert found == {"Spark releases": {NEW: {"sink": "ok"}}, "Kafka releases": {}, "Message formats": {}}


def test_a_test_that_did_not_pass_leaves_no_record(tmp_path):
    with pytest.raises(SystemExit, match="test_it did not pass"):
        tested.tables([report(tmp_path, ("Spark releases", "sink", NEW, "ok"), inside="<failure/>")])


def test_the_page_has_a_head_row_for_each_part_of_a_column_and_orders_releases_by_number(tmp_path):
    record = ran(
        tmp_path,
        ("Spark releases", "sink", NEW, "ok"),
        ("Spark releases", "listener", NEW, "ok"),
        ("Spark releases", "listener", OLD, "refused"),
    )
    assert tested.page(f"before\n{tested.BEGIN}old\n{tested.END}after\n", record).splitlines() == [
        "before",
        tested.BEGIN.strip(),
        "",
        "## Spark releases",
        "",
        "| Spark | 3.5.9 | 4.10.0 |",
        "|---|---|---|",
        "| Kafka | 3.3.2 | 4.4.0 |",
        "| Python | 3.11 | 3.12 |",
        "| listener | refused | ok |",
        "| sink | – | ok |",
        "",
        tested.END.strip(),
        "after",
    ]


@pytest.mark.parametrize(
    ("recorded", "wrong"),
    [
        ([("Spark releases", "sink", NEW, "ok")], []),
        ([("Spark releases", "sink", NEW.replace("3.12", "3.11"), "ok")], []),
        ([("Spark releases", "sink", NEW, "ok"), ("Spark releases", "sink", OLD, "ok")], []),
        ([("Spark releases", "sink", NEW, "refused")], [f"Spark releases, {NEW}"]),
        ([("Spark releases", "sink", NEW, "ok"), ("Spark releases", "more", NEW, "ok")], [f"Spark releases, {NEW}"]),
        ([("Spark releases", "sink", OLD, "ok")], [f"Spark releases, {NEW}"]),
    ],
    ids=["same", "another Python", "more columns", "another outcome", "more rows", "not recorded"],
)
def test_a_column_that_ran_must_be_the_recorded_one(tmp_path, recorded, wrong):
    found = ran(tmp_path, ("Spark releases", "sink", NEW, "ok"))
    assert tested.differences(ran(tmp_path, *recorded), found) == wrong


def test_the_page_shows_the_record():
    text = tested.PAGE.read_text()
    assert tested.page(text, json.loads(tested.RECORD.read_text())) == text
