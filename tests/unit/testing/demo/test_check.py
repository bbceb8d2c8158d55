"""Each way in which the output could be wrong turns its own figure, so the demo can fail."""

import pytest

from spark_kafka_eos.testing.demo.check import Comparison, ConsumedCounts, Crashes, compare, compare_table, figures


def value(number: int, *, delay: int = 5, airport: str = "EWR", aborted: bool = False) -> dict[str, object]:
    return {"id": number, "airport": airport, "dep_delay": delay, "aborted": aborted}


EXPECTED = {number: value(number) for number in (1, 2, 3)}
RIGHT = [("EWR", value(number)) for number in (1, 2, 3)]


def counts(*, correct: int = 3, missing: int = 0, duplicates: int = 0, wrong: int = 0, aborted: int = 0) -> Comparison:
    return Comparison(correct=correct, missing=missing, duplicates=duplicates, wrong=wrong, aborted=aborted)


def test_the_expected_records_in_any_order_are_all_found() -> None:
    assert compare(EXPECTED, reversed(RIGHT)) == counts()


def test_a_record_that_is_not_there_is_missing() -> None:
    assert compare(EXPECTED, RIGHT[1:]) == counts(correct=2, missing=1)


def test_a_record_read_thrice_is_two_duplicates() -> None:
    assert compare(EXPECTED, RIGHT + RIGHT[:1] * 2) == counts(duplicates=2)


def test_a_flight_that_was_not_late_is_wrong() -> None:
    assert compare(EXPECTED, [*RIGHT, ("EWR", value(4))]) == counts(wrong=1)


def test_a_record_with_another_delay_is_wrong_and_its_flight_missing() -> None:
    assert compare(EXPECTED, [*RIGHT[:2], ("EWR", value(3, delay=6))]) == counts(correct=2, missing=1, wrong=1)


def test_a_record_keyed_by_another_airport_is_wrong() -> None:
    assert compare(EXPECTED, [*RIGHT[:2], ("JFK", value(3))]) == counts(correct=2, missing=1, wrong=1)


def test_a_copy_of_an_aborted_input_transaction_is_counted_as_that_alone() -> None:
    assert compare(EXPECTED, [*RIGHT, ("EWR", value(1, aborted=True))]) == counts(aborted=1)


def survey(output: Comparison | None = None, *, read: int = 10, visible: int = 0, unseen: int = 2) -> ConsumedCounts:
    return ConsumedCounts(
        flights_read=read,
        input_aborted_visible=visible,
        input_aborted_uncommitted=unseen,
        output=output or counts(),
        output_uncommitted=7,
    )


def crashes(*, executors: tuple[int, ...] = (), redone: tuple[int, ...] = (), committed: int = 6) -> Crashes:
    return Crashes(drivers=(1, 3), executors=executors, committed=committed, redone=frozenset(redone))


def wrong(found: ConsumedCounts, crashed: Crashes | None = None) -> list[str]:
    shown = figures(flights=10, late=3, aborted_sent=2, crashes=crashed or crashes(), survey=found)
    return [figure.name for figure in shown if not figure.holds]


def test_in_a_correct_run_every_figure_holds() -> None:
    assert wrong(survey()) == []


def test_each_deviation_makes_its_figure_wrong() -> None:
    assert wrong(survey(read=9)) == ["flights read"]
    assert wrong(survey(counts(correct=2, missing=1))) == ["late flights", "missing"]
    assert wrong(survey(counts(duplicates=1))) == ["duplicates"]
    assert wrong(survey(counts(wrong=1))) == ["wrong or unexpected"]
    assert wrong(survey(counts(aborted=1))) == ["aborted records seen"]
    assert wrong(survey(visible=1)) == ["aborted records seen"]
    assert wrong(survey(), crashes(committed=3)) == ["driver kills survived"]


def test_an_input_without_its_aborted_records_proves_nothing() -> None:
    assert wrong(survey(unseen=0)) == ["… by read_uncommitted"]


def test_a_note_counts_the_records_of_the_jobs_own_aborted_attempts() -> None:
    shown = figures(flights=10, late=3, aborted_sent=2, crashes=crashes(), survey=survey())
    (contrast,) = (figure for figure in shown if figure.note)
    assert "and 4 in the output" in contrast.note


def test_the_batch_of_each_killed_executor_must_have_been_written_again() -> None:
    assert wrong(survey(), crashes(executors=(2, 5), redone=(2, 5))) == []
    assert wrong(survey(), crashes(executors=(2, 5), redone=(2,))) == ["batches written again"]
    assert wrong(survey(), crashes(executors=(2, 5), redone=(2, 4))) == ["batches written again"]
    assert wrong(survey(), crashes(executors=(2, 5), redone=(2, 5), committed=5)) == ["executor kills survived"]


def test_without_killed_executors_the_table_does_not_mention_them() -> None:
    shown = figures(flights=10, late=3, aborted_sent=2, crashes=crashes(redone=(4,)), survey=survey())
    assert shown[-1].name == "driver kills survived"


def test_a_batch_written_again_for_another_reason_is_only_a_note() -> None:
    crashed = crashes(executors=(2,), redone=(2, 4))
    shown = figures(flights=10, late=3, aborted_sent=2, crashes=crashed, survey=survey())
    assert (shown[-1].expected, shown[-1].actual, shown[-1].note) == (1, 1, "for other reasons: 4")


@pytest.mark.parametrize(
    ("rows", "records", "off"),
    [
        ("abb", "abb", []),
        ("ab", "abb", ["rows in the table", "only in the topic"]),
        ("abb", "ab", ["only in the table"]),
        ("abx", "abb", ["only in the table", "only in the topic"]),
    ],
)
def test_a_table_must_have_the_topics_values_each_as_often(rows: str, records: str, off: list[str]) -> None:
    table = compare_table(rows, records)
    shown = figures(flights=10, late=3, aborted_sent=2, crashes=crashes(), survey=survey(), table=table)
    assert [figure.name for figure in shown if not figure.holds] == off
