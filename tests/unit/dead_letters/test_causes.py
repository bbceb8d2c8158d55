from dataclasses import fields
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_kafka_eos.dead_letters.causes import LONGEST_MESSAGE, MOST_CAUSES, Cause, check_limit, counted
from spark_kafka_eos.dead_letters.headers import PREFIX, DeadLetter, letter_of, own_headers
from spark_kafka_eos.errors import TooManyDeadLetters
from spark_kafka_eos.options.parsers import limit as limit_of
from spark_kafka_eos.options.values import Limit
from tests.letters import headers_of

WHOLE = DeadLetter(
    cause=Cause.UNKNOWN_SCHEMA,
    message="the registry has no schema 7",
    topic="orders",
    partition=0,
    offset=0,
    timestamp=1_700_000_000_000,
    schema_id=7,
    query_id="q",
    batch_id=0,
    transactional_id="clean",
    output_topic="orders-clean",
    output_timestamp=-1,
)


def test_the_headers_have_these_names_in_this_order():
    assert headers_of(WHOLE) == [
        ("__kafka_eos.errors.cause", b"unknown-schema"),
        ("__kafka_eos.errors.message", b"the registry has no schema 7"),
        ("__kafka_eos.errors.topic", b"orders"),
        ("__kafka_eos.errors.partition", b"0"),
        ("__kafka_eos.errors.offset", b"0"),
        ("__kafka_eos.errors.timestamp", b"1700000000000"),
        ("__kafka_eos.errors.schema.id", b"7"),
        ("__kafka_eos.errors.query.id", b"q"),
        ("__kafka_eos.errors.batch.id", b"0"),
        ("__kafka_eos.errors.transactional.id", b"clean"),
        ("__kafka_eos.errors.output.topic", b"orders-clean"),
        ("__kafka_eos.errors.output.timestamp", b"-1"),
    ]
    assert len(headers_of(WHOLE)) == len(fields(DeadLetter))


def test_what_is_unknown_has_no_header():
    assert headers_of(DeadLetter(cause="late", message="")) == [(f"{PREFIX}cause", b"late")]


words = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=60)
numbers = st.integers(-(2**63), 2**63 - 1)


@given(
    st.builds(
        DeadLetter,
        cause=words,
        **{
            f.name: st.none() | (numbers if "int" in f.type else words) for f in fields(DeadLetter) if f.name != "cause"
        },
    ),
    st.lists(st.tuples(words, st.none() | st.binary())),
)
def test_what_is_built_is_parsed_again_and_the_records_own_headers_stay(letter, own):
    headers = [*own, *headers_of(letter)]
    assert letter_of(headers) == letter
    assert own_headers(headers) == own


def test_a_record_that_became_a_dead_letter_twice_tells_of_the_second_time_only():
    again = DeadLetter(cause=Cause.NO_TOPIC)
    assert letter_of([*headers_of(WHOLE), *headers_of(again)]) == again


@pytest.mark.parametrize("headers", [[], [("k", b"v")], [(f"{PREFIX}message", b"without a cause")]])
def test_a_record_without_a_cause_is_no_dead_letter(headers):
    assert letter_of(headers) is None


@pytest.mark.parametrize("text", [b"", b"x", b"1.5", b"9" * 40, b"\xff"])
def test_what_others_wrote_in_place_of_a_number_is_unknown(text):
    assert letter_of([(f"{PREFIX}cause", b"\xff"), (f"{PREFIX}offset", text)]) == DeadLetter(cause="�")


def test_a_message_is_one_line_of_limited_length():
    (_, (_, message)) = headers_of(DeadLetter(cause="late", message="two\n  lines " + "x" * 1_000))
    assert message.decode().startswith("two lines xxx")
    assert len(message.decode()) == LONGEST_MESSAGE


def test_an_empty_cause_is_another_one():
    assert headers_of(DeadLetter(cause="")) == [(f"{PREFIX}cause", b"other")]
    assert letter_of([(f"{PREFIX}cause", None)]) == DeadLetter(cause="other")


def test_counts_are_added_the_most_frequent_first_and_few():
    assert list(counted([{"a": 1, "b": 2}, {"b": 1, "c": 2}]).items()) == [("b", 3), ("c", 2), ("a", 1)]
    many = counted([{f"cause {n}": 2 for n in range(MOST_CAUSES)}, {"rare": 1, "rarer": 1}])
    assert (len(many), many["other"]) == (MOST_CAUSES + 1, 2)


@pytest.mark.parametrize(
    ("limit", "dead", "records", "fails"),
    [
        (None, 100, 100, False),
        (Limit(count=3), 3, 3, False),
        (Limit(count=3), 4, 1_000_000, True),
        (Limit(count=0), 1, 1, True),
        (Limit(share=Fraction("0.01")), 1, 1, False),  # rounded up
        (Limit(share=Fraction("0.01")), 2, 101, False),
        (Limit(share=Fraction("0.01")), 2, 100, True),
        (Limit(share=Fraction("0.0")), 1, 100, True),
        (Limit(count=3, share=Fraction("0.5")), 3, 6, False),
        (Limit(count=3, share=Fraction("0.5")), 4, 8, True),
        (Limit(count=3, share=Fraction("0.5")), 3, 4, True),
    ],
)
def test_a_batch_with_more_dead_letters_than_its_limit_fails_and_says_why(limit, dead, records, fails):
    check_limit({}, records, limit)
    counts = {"undecodable": dead - 1, "not-framed": 1}
    if not fails:
        check_limit(counts, records, limit)
        return
    with pytest.raises(
        TooManyDeadLetters, match=f"{dead} of the batch's .*not-framed=1.*maxDeadLetters={limit}"
    ) as raised:
        check_limit(counts, records, limit)
    assert raised.value.committed == "nothing"


@given(st.decimals(0, 100, places=4), st.integers(1, 10**9))
@example(percent=Decimal(7), records=100)
@example(percent=Decimal("0.07"), records=10_000)
def test_a_share_is_that_of_its_decimal_digits(percent, records):
    allowed = -(-int(percent * 10_000) * records // 1_000_000)
    limit = limit_of(f"{percent:f}%")
    check_limit({"late": allowed}, records, limit)
    with pytest.raises(TooManyDeadLetters, match="more than maxDeadLetters="):
        check_limit({"late": allowed + 1}, records, limit)
