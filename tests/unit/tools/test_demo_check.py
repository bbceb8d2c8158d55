"""Each way in which the output could be wrong turns its own figure, so the demo can fail."""

from spark_kafka_eos.tools.demo_check import Comparison, Survey, compare, figures


def value(number: int, *, delay: int = 5, airport: str = "EWR", aborted: bool = False) -> dict[str, object]:
    return {"id": number, "airport": airport, "dep_delay": delay, "aborted": aborted}


EXPECTED = {number: value(number) for number in (1, 2, 3)}
RIGHT = [("EWR", value(number)) for number in (1, 2, 3)]


def counts(*, found: int = 3, missing: int = 0, duplicates: int = 0, wrong: int = 0, aborted: int = 0) -> Comparison:
    return Comparison(found=found, missing=missing, duplicates=duplicates, wrong=wrong, aborted=aborted)


def test_the_expected_records_in_any_order_are_all_found() -> None:
    assert compare(EXPECTED, reversed(RIGHT)) == counts()


def test_a_record_that_is_not_there_is_missing() -> None:
    assert compare(EXPECTED, RIGHT[1:]) == counts(found=2, missing=1)


def test_a_record_read_thrice_is_two_duplicates() -> None:
    assert compare(EXPECTED, RIGHT + RIGHT[:1] * 2) == counts(duplicates=2)


def test_a_flight_that_was_not_late_is_wrong() -> None:
    assert compare(EXPECTED, [*RIGHT, ("EWR", value(4))]) == counts(wrong=1)


def test_a_record_with_another_delay_is_wrong_and_its_flight_missing() -> None:
    assert compare(EXPECTED, [*RIGHT[:2], ("EWR", value(3, delay=6))]) == counts(found=2, missing=1, wrong=1)


def test_a_record_keyed_by_another_airport_is_wrong() -> None:
    assert compare(EXPECTED, [*RIGHT[:2], ("JFK", value(3))]) == counts(found=2, missing=1, wrong=1)


def test_a_copy_of_an_aborted_input_transaction_is_counted_as_that_alone() -> None:
    assert compare(EXPECTED, [*RIGHT, ("EWR", value(1, aborted=True))]) == counts(aborted=1)


def survey(output: Comparison | None = None, *, read: int = 10, visible: int = 0, unseen: int = 2) -> Survey:
    return Survey(
        flights_read=read,
        input_aborted_visible=visible,
        input_aborted_uncommitted=unseen,
        output=output or counts(),
        output_uncommitted=7,
    )


def off(found: Survey, *, survived: int = 2) -> list[str]:
    shown = figures(flights=10, late=3, aborted_sent=2, kills=2, survived=survived, survey=found)
    return [figure.name for figure in shown if not figure.holds]


def test_a_run_as_it_should_be_has_no_figure_off() -> None:
    assert off(survey()) == []


def test_each_deviation_turns_its_figure_off() -> None:
    assert off(survey(read=9)) == ["flights read"]
    assert off(survey(counts(found=2, missing=1))) == ["late flights", "missing"]
    assert off(survey(counts(duplicates=1))) == ["duplicates"]
    assert off(survey(counts(wrong=1))) == ["wrong or unexpected"]
    assert off(survey(counts(aborted=1))) == ["aborted records seen"]
    assert off(survey(visible=1)) == ["aborted records seen"]
    assert off(survey(), survived=1) == ["kills survived"]


def test_an_input_without_its_aborted_records_proves_nothing() -> None:
    assert off(survey(unseen=0)) == ["… by read_uncommitted"]


def test_the_contrast_counts_what_the_jobs_own_aborted_tries_left_in_the_log() -> None:
    shown = figures(flights=10, late=3, aborted_sent=2, kills=2, survived=2, survey=survey())
    (contrast,) = (figure for figure in shown if figure.note)
    assert "and 4 of killed drivers" in contrast.note
