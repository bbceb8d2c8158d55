"""The data set is read as it is, and what left late is computed from it alone."""

import json
from collections.abc import Iterator

from spark_kafka_eos.testing.demo.flights import (
    Flight,
    late_flights,
    parse_flights,
    payload,
    read_airlines,
    read_flights,
)

HEAD = "month,time_hour,carrier,flight,origin,dest,dep_delay\n"


def lines(*rows: str) -> Iterator[str]:
    return iter([HEAD, *(f"{row}\n" for row in rows)])


def flight(number: int, dep_delay: int | None, carrier: str = "UA") -> Flight:
    return Flight(
        id=number,
        month=1,
        time_hour="2013-01-01T10:00:00Z",
        carrier=carrier,
        flight=1545,
        origin="EWR",
        dest="IAH",
        dep_delay=dep_delay,
    )


def test_a_month_keeps_the_row_numbers_of_the_whole_data_set() -> None:
    rows = ["1,t,UA,1,EWR,IAH,2", "2,t,AA,2,JFK,MIA,0", "1,t,DL,3,LGA,ATL,-4"]
    assert [found.id for found in parse_flights(lines(*rows), month=1)] == [1, 3]


def test_na_is_no_delay_at_all() -> None:
    (cancelled,) = parse_flights(lines("1,t,EV,4308,EWR,RDU,NA"))
    assert cancelled.dep_delay is None


def test_only_a_delay_above_zero_is_late() -> None:
    late = late_flights([flight(1, -3), flight(2, 0), flight(3, 1), flight(4, None)], {"UA": "United"})
    assert list(late) == [3]


def test_a_late_flight_carries_its_airlines_name_and_its_airport() -> None:
    late = late_flights([flight(7, 12)], {"UA": "United Air Lines Inc."})
    assert late[7]["airline"] == "United Air Lines Inc."
    assert late[7]["airport"] == "EWR"


def test_the_data_set_holds_every_departure_of_january_and_the_name_of_each_carrier() -> None:
    january = read_flights(month=1)
    assert len(january) == 27_004
    assert {found.carrier for found in january} <= read_airlines().keys()


def test_the_payload_marks_the_copy_of_an_aborted_transaction() -> None:
    copy, kept = (json.loads(payload(flight(1, 2), aborted=aborted)) for aborted in (True, False))
    assert copy["aborted"] is True
    assert kept["aborted"] is False
    assert {**copy, "aborted": False} == kept
