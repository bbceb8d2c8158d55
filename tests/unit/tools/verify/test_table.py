"""Invariant 7: what a table and a topic have in common, and how a difference is named."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from decimal import Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.verify.table import ComparedColumns, RowDigests, cell, compare_table, read_rows

VALUE = ComparedColumns()
ORDERS = ComparedColumns(names=("id", "amount"), identity=("id",))


def compared(records, rows, columns=VALUE):
    """The violations of a topic of these values and a table of these rows: by kind, the number and the first places."""
    found = RowDigests(columns)
    for value in records:
        found.add(columns.of_record(None, value))
    finding = compare_table(
        found, read_rows(lambda: rows, columns), "t-0@{}".format, rows_again=lambda: iter(rows), columns=columns
    )
    assert finding.checked == len(rows)
    assert (finding.verdict == "holds") == (not finding.violations)
    return {each.kind: (each.count, [each.where, *each.also]) for each in finding.violations}


def order(number, amount):
    return json.dumps({"id": number, "amount": amount, "more": [1]}).encode()


def test_the_same_rows_in_any_order_hold():
    assert compared([b"1", b"2", b"2", None], [(2,), (None,), (1,), (2,)]) == {}
    assert compared([], []) == {}
    assert compared([order(1, 2.50), order(2, None)], [(2, None), (1, Decimal("2.5"))], ORDERS) == {}


def test_what_only_one_side_has_is_named_there():
    assert compared([b"1", b"8", b"9"], [(1,), (7,), (6,), (None,)]) == {
        "only in the table": (3, ["row (7)", "row (6)", "row (NULL)"]),
        "only in the topic": (2, ["t-0@1", "t-0@2"]),
    }


def test_what_one_side_has_more_often_is_repeated_there():
    assert compared([b"1", b"1", b"2", b"1"], [(1,), (2,)]) == {"repeated in the topic": (2, ["t-0@3"])}
    assert compared([b"1", b"2"], [(1,), (2,), (2,)]) == {"repeated in the table": (1, ["row (2)"])}


def test_a_row_with_the_same_identity_and_other_columns_is_different():
    records = [order(1, 2), order(2, 3), order(3, 4), order(3, 4)]
    assert compared(records, [(1, 2), (2, 4), (3, 4), (4, 5)], ORDERS) == {
        "only in the table": (1, ["row (4)"]),
        "repeated in the topic": (1, ["t-0@3"]),
        "different": (1, ["t-0@1"]),
    }


@pytest.mark.parametrize("rows", [[(1,), (2,), (7,)], [(1,), (2,), (2,)]])
def test_what_a_topic_that_lost_records_lacks_is_not_held_against_the_table(rows):
    records = RowDigests(VALUE)
    for value in (b"1", b"2", b"9"):
        records.add(VALUE.of_record(None, value))
    finding = compare_table(
        records,
        read_rows(lambda: rows, VALUE),
        "t-0@{}".format,
        rows_again=lambda: iter(rows),
        columns=VALUE,
        topic_is_whole=False,
    )
    assert [each.kind for each in finding.violations] == ["only in the topic"]
    assert finding.unchecked.endswith("; but some of the output is deleted or compacted")


@given(st.lists(st.sampled_from([b"a", b"b", b"c"])), st.lists(st.sampled_from([b"a", b"b", b"c"])))
def test_the_counts_are_those_of_multisets(records, rows):
    found = compared(records, rows)
    there, here = Counter(records), Counter(rows)
    surplus_there = sum(found.get(kind, (0,))[0] for kind in ("only in the topic", "repeated in the topic"))
    surplus_here = sum(found.get(kind, (0,))[0] for kind in ("only in the table", "repeated in the table"))
    assert (surplus_there, surplus_here) == ((there - here).total(), (here - there).total())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("é", "é".encode()),
        (bytearray(b"x"), b"x"),
        (True, b"1"),
        (7, b"7"),
        (7.0, b"7"),
        (Decimal("7.50"), b"7.5"),
        (1e20, b"100000000000000000000"),
        (1e-7, b"0.0000001"),
        (Decimal("1E+2"), b"100"),
        (Decimal("-100.00"), b"-100"),
        (-0.0, b"0"),
        (Decimal("-0E+3"), b"0"),
        (Decimal("-0.50"), b"-0.5"),
        (float("nan"), b"nan"),
        (dt.date(2026, 1, 31), b"2026-01-31"),
    ],
)
def test_a_cell_is_compared_as_text_and_a_number_by_its_value(value, text):
    assert cell(value) == text


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_every_digit_of_sparks_largest_decimals_counts(unscaled, scale):
    number, next_one = (Decimal(digits).scaleb(-scale, Context(prec=40)) for digits in (unscaled, unscaled + 1))
    text = cell(number)
    assert text != cell(next_one)
    assert text is not None and Decimal(text.decode()) == number


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ("12345678901234567890.1234567891", "12345678901234567890.1234567899"),
        ("99999999999999999999999999999.5", "99999999999999999999999999999.6"),
        ("1E+400", "2E+400"),
    ],
)
def test_numbers_that_no_double_tells_apart_are_different(stored, sent):
    record = b'{"id": 1, "amount": %s}' % sent.encode()
    assert compared([record], [(1, Decimal(stored))], ORDERS) == {"different": (1, ["t-0@0"])}
    assert compared([record], [(1, Decimal(sent))], ORDERS) == {}


@pytest.mark.parametrize("number", ["1E+999999999", "-1E-999999999"])
def test_a_number_of_more_digits_than_any_database_has_is_not_written_out(number):
    with pytest.raises(ValueError, match="more digits than any database"):
        ORDERS.of_record(None, b'{"id": 1, "amount": %s}' % number.encode())


def test_null_and_empty_differ_and_so_do_shifted_cells():
    two = ComparedColumns(names=("key", "value"))
    finding = RowDigests(two)
    for cells in [(None, b""), (b"", None), (b"a", b"bc"), (b"ab", b"c")]:
        finding.add(cells)
    assert len({each.tobytes() for each in finding.contents}) == 4


@pytest.mark.parametrize("rows", [[(1, 2)], [([1],)], [(1,), object]], ids=["columns", "nested", "no row"])
def test_rows_that_cannot_be_compared_are_an_error(rows):
    columns = VALUE if rows[-1] is not object else ComparedColumns(names=("a", "b"))
    with pytest.raises(ToolFailed, match="cannot be read or compared, at row 1"):
        read_rows(lambda: rows, columns)


@pytest.mark.parametrize("value", [None, b"", b"[1]", b"x", b'{"id": [1], "amount": 1}'])
def test_a_value_that_has_no_plain_fields_cannot_be_compared(value):
    with pytest.raises(ValueError, match="JSON object|plain values"):
        ORDERS.of_record(None, value)


def test_only_a_column_can_identify_a_row():
    with pytest.raises(ValueError, match="'x' is none of the columns value"):
        ComparedColumns(identity=("x",))
