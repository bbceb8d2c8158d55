"""Every flight is sent in a committed transaction once; a tenth of the transactions is aborted before."""

from collections import Counter
from itertools import pairwise

from spark_kafka_eos.testing.demo.flights import Flight
from spark_kafka_eos.testing.demo.flights_producer import plan


def flights(count: int) -> list[Flight]:
    return [
        Flight(id=n, month=1, time_hour="t", carrier="UA", flight=n, origin="EWR", dest="IAH", dep_delay=n)
        for n in range(1, count + 1)
    ]


def test_committed_transactions_send_every_flight_once_and_in_order() -> None:
    sent = [
        flight.id for transaction in plan(flights(1_003), 10) if transaction.commit for flight in transaction.flights
    ]
    assert sent == list(range(1, 1_004))


def test_a_tenth_of_the_transactions_is_aborted_and_sent_again_at_once() -> None:
    transactions = list(plan(flights(1_000), 10))
    assert Counter(transaction.commit for transaction in transactions) == {True: 100, False: 10}
    for aborted, again in pairwise(transactions):
        if not aborted.commit:
            assert again.commit
            assert again.flights == aborted.flights
