"""Sends the demo's flights with a transactional librdkafka producer that intentionally aborts some transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_kafka_eos.testing.demo.flights import Flight, payload


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTransaction:
    """The flights of one input transaction, and whether it is committed or aborted."""

    flights: Sequence[Flight]
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """The numbers of records in committed transactions, which a consumer must see, and in aborted ones."""

    committed: int
    aborted: int


def plan(flights: Sequence[Flight], size: int) -> Iterator[InputTransaction]:
    """All flights in order, `size` per transaction; every tenth transaction is first sent once and aborted."""
    for number, start in enumerate(range(0, len(flights), size), start=1):
        chunk = flights[start : start + size]
        if number % 10 == 0:
            yield InputTransaction(flights=chunk, commit=False)
        yield InputTransaction(flights=chunk, commit=True)


def produce(
    bootstrap: str,
    topic: str,
    flights: Sequence[Flight],
    *,
    size: int,
    progress: Callable[[Produced], None] = lambda _: None,
) -> Produced:
    """Send `flights` to `topic` with the carrier as key; call `progress` after each transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-producer", "linger.ms": 5}
    # The log level hides the retries of a new broker's "load in progress"; relevant errors are raised.
    producer = Producer(settings | {"log_level": 2})
    producer.init_transactions()
    done = Produced(committed=0, aborted=0)
    for transaction in plan(flights, size):
        producer.begin_transaction()
        for flight in transaction.flights:
            producer.produce(topic, key=flight.carrier, value=payload(flight, aborted=not transaction.commit))
        # An abort discards the producer's queue: without a flush, no aborted record would reach the log.
        producer.flush()
        if transaction.commit:
            producer.commit_transaction()
            done = Produced(committed=done.committed + len(transaction.flights), aborted=done.aborted)
        else:
            producer.abort_transaction()
            done = Produced(committed=done.committed, aborted=done.aborted + len(transaction.flights))
        progress(done)
    return done
