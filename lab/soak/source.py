"""Feeds the source topic of a soak: a librdkafka producer with a steady rate, which aborts some transactions.

Values are numbers from 0 on, with keys in turn. Values in transactions that will be aborted have a prefix, so that they
can be recognized in any output. Faults also abort transactions, so the check reads the topic itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Producer

from lab.soak.queries import ABORTED, SOURCE, TRANSACTION_TIMEOUT_MS

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())  # not to standard error: a soak causes outages

KEYS = 200
_INTERVAL = 0.25  # seconds of records in a transaction
_ABORT_EVERY = 10
_BEHIND = 4  # seconds of records that are sent late after an outage; the rest is skipped
_CALL_SECONDS = 5.0


class Source:
    """A producer in its own thread, from `start()` to `stop()`."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        self._rate = rate
        self._config = {
            "bootstrap.servers": bootstrap,
            "transactional.id": "soak-producer",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            "socket.timeout.ms": 5_000,
            "linger.ms": 5,
        }
        self.committed = 0  # records that the producer knows to be committed
        self.aborted = 0
        self._number = 0
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="soak source", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def check(self) -> None:
        """Raise the error with which the producer failed, if any."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the open transaction, and stop sending. Raises as `check` does."""
        self._stopping.set()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        try:
            producer = self._new()
            started, skipped = time.monotonic(), 0.0
            transaction = 0
            while not self._stopping.wait(_INTERVAL):
                due = int((time.monotonic() - started - skipped) * self._rate) - self._number
                if due > self._rate * _BEHIND:
                    skipped += due / self._rate - _BEHIND
                    due = self._rate * _BEHIND
                transaction += 1
                if not self._transaction(producer, due, abort=transaction % _ABORT_EVERY == 0):
                    producer = self._new()
        except BaseException as error:  # noqa: BLE001 - `check` raises it in the soak's own thread
            self._error = error

    def _new(self) -> Producer:
        """A producer that has fenced the previous one and aborted its open transaction."""
        while True:
            producer = Producer(self._config, logger=_log)
            try:
                _again(partial(producer.init_transactions, _CALL_SECONDS))
                return producer
            except KafkaException as error:
                if not _of(error).fatal():
                    raise

    def _transaction(self, producer: Producer, records: int, *, abort: bool) -> bool:
        """Send `records` records in a transaction; return whether the producer can still be used."""
        numbers = range(self._number, self._number + records)
        self._number += records
        try:
            producer.begin_transaction()
            for number in numbers:
                value = f"{ABORTED}{number}" if abort else f"{number}"
                producer.produce(SOURCE, key=f"key-{number % KEYS:03}", value=value)
            _again(lambda: _flushed(producer))
            if not abort:
                _again(lambda: producer.commit_transaction(_CALL_SECONDS))
                self.committed += records
                return True
        except KafkaException as error:
            if not _of(error).txn_requires_abort():
                return False
        try:
            _again(lambda: producer.abort_transaction(_CALL_SECONDS))
        except KafkaException:
            return False
        self.aborted += records
        return True


def _flushed(producer: Producer) -> None:
    """Flush: an abort discards the producer's queue, so that no aborted record would reach the log."""
    while producer.flush(_CALL_SECONDS):
        pass


def _again(call: Callable[[], object]) -> None:
    """Repeat the call until it succeeds, or fails with an error that is not retriable."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not _of(error).retriable():
                raise


def _of(error: KafkaException) -> KafkaError:
    kafka_error = error.args[0]
    assert isinstance(kafka_error, KafkaError)
    return kafka_error
