"""Sends the demo's flights with a plain transactional producer that aborts a tenth of its transactions on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from spark_kafka_eos.lab.flights import Flight, payload


@dataclass(frozen=True, slots=True, kw_only=True)
class InputTransaction:
    """What one input transaction sends, and whether it is then committed or aborted."""

    flights: Sequence[Flight]
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced:
    """Records by the fate of their transaction: what a consumer may see and what it must not."""

    committed: int
    aborted: int


def plan(flights: Sequence[Flight], size: int) -> Iterator[InputTransaction]:
    """All flights in order, `size` a transaction; every tenth transaction is aborted first and sent again."""
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
    """Send `flights` to `topic`, keyed by carrier; `progress` is told after each transaction."""
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-producer", "linger.ms": 5}
    producer = Producer(
        settings | {"log_level": 2}
    )  # a new broker's "load in progress" is retried; what matters is raised
    producer.init_transactions()
    done = Produced(committed=0, aborted=0)
    for transaction in plan(flights, size):
        producer.begin_transaction()
        for flight in transaction.flights:
            producer.produce(topic, key=flight.carrier, value=payload(flight, aborted=not transaction.commit))
        # An abort discards what is still queued here: only flushed records reach the log and tempt a reader.
        producer.flush()
        if transaction.commit:
            producer.commit_transaction()
            done = Produced(committed=done.committed + len(transaction.flights), aborted=done.aborted)
        else:
            producer.abort_transaction()
            done = Produced(committed=done.committed, aborted=done.aborted + len(transaction.flights))
        progress(done)
    return done
