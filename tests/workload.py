"""A random workload on one topic, from a seed: producers with and without transactions, aborts, sizes, compressions.

Producers are librdkafka's. Every record's place comes from its delivery report and its fate from what its producer did,
so what a reader should see is known without any reader.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Producer

from tests.reading import Row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LONG_AGO = 1_700_000_000_000


def seeds(*, or_else: str) -> list[int]:
    """The seeds to run: those of the environment's KAFKA_EOS_SEEDS, such as `7,100-102`."""
    bounds = [part.partition("-") for part in os.environ.get("KAFKA_EOS_SEEDS", or_else).split(",")]
    return [seed for first, _, last in bounds for seed in range(int(first), int(last or first) + 1)]


@dataclass(slots=True)
class Writer:
    """A producer; `pending` are the rows of its open transaction, None if it has none."""

    producer: Producer
    transactional: bool
    pending: list[Row] | None = None


@dataclass(slots=True)
class Workload:
    """Call `run` once and read along; `committed` and `written` hold every row so far, `stop` ends what is open."""

    bootstrap: str
    topic: str
    partitions: int
    seed: int
    writers: list[Writer] = field(default_factory=list)
    committed: list[Row] = field(default_factory=list)
    written: list[Row] = field(default_factory=list)

    def run(self, *, producers: int = 6, steps: int = 60) -> Iterator[int]:
        """Step after step, each one producer's; all it sends is in the log when the step's number is yielded."""
        chance = random.Random(self.seed)
        self.writers = [self._writer(number, chance) for number in range(producers)]
        for step in range(steps):
            self._step(chance.choice(self.writers), chance)
            yield step

    @property
    def transactional_ids(self) -> list[str]:
        """Those of its producers."""
        return [f"{self.topic}-{number}" for number, writer in enumerate(self.writers) if writer.transactional]

    def stop(self) -> None:
        """Commit or abort every open transaction."""
        chance = random.Random(-self.seed)
        for writer in self.writers:
            if writer.pending is not None:
                self._end(writer, commit=chance.random() < 0.5)

    def _writer(self, number: int, chance: random.Random) -> Writer:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": CODECS[number % len(CODECS)],
            "linger.ms": chance.choice([0, 5, 20]),
            "batch.num.messages": chance.choice([1, 7, 100, 10_000]),
            "enable.idempotence": True,
        }
        transactional = number % 3 != 0
        if transactional:
            settings["transactional.id"] = f"{self.topic}-{number}"
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(30)
        return Writer(producer, transactional)

    def _step(self, writer: Writer, chance: random.Random) -> None:
        if not writer.transactional:
            self.committed += self._send(writer.producer, chance)
            return
        if writer.pending is None:
            writer.producer.begin_transaction()
            writer.pending = []
        writer.pending += self._send(writer.producer, chance)
        if chance.random() < 0.6:
            self._end(writer, commit=chance.random() < 0.5)

    def _end(self, writer: Writer, *, commit: bool) -> None:
        if commit:
            writer.producer.commit_transaction(30)
            self.committed += writer.pending or []
        else:
            writer.producer.abort_transaction(30)
        writer.pending = None

    def _send(self, producer: Producer, chance: random.Random) -> list[Row]:
        sent: list[Row] = []

        def delivered(headers: list[tuple[str, bytes | None]], error: object, message: Any) -> None:
            assert error is None, error
            sent.append(
                (
                    self.topic,
                    message.partition(),
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    tuple(headers) if headers else None,
                )
            )

        for _ in range(chance.choice([1, 3, 20, 100])):
            headers = [(f"h{n % 2}", _bytes(chance, 10)) for n in range(chance.choice([0, 0, 1, 3]))]
            producer.produce(
                self.topic,
                _bytes(chance, 3_000),
                _bytes(chance, 20),
                chance.randrange(self.partitions),
                on_delivery=partial(delivered, headers),  # a report brings all but the headers
                timestamp=_LONG_AGO + chance.randrange(10**9),
                headers=[*headers],
            )
        assert producer.flush(60) == 0
        self.written += sent
        return sent


def _bytes(chance: random.Random, most: int) -> bytes | None:
    """None, nothing, noise, or what compresses well."""
    size = chance.randrange(most)
    return chance.choice([None, b"", chance.randbytes(size), b"%d " % size * (size // 5)])
