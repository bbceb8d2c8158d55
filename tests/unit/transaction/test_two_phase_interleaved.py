"""Drivers that fail, pause and are killed at any request to Kafka and any call of the table, while others take over."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import KafkaEosError
from tests.both import Kafka, Killed, Table, both_have, driver, rows_of, run

BATCHES = 3
EVENTS = 45  # of a driver that writes all of them, about
ALONE = ("killed before", "killed after", "lost", "unanswered")
ACTIONS = (*ALONE, "overtaken before", "overtaken after", "timed out")
Faults = dict[int, str]


class Lost(Exception):
    """The connection to the table's database."""


class History:
    """The drivers of one query, which share a checkpoint: each one has its faults, by the number of the event.

    With `drawn`, each driver computes other rows.
    """

    def __init__(self, version: int, drivers: list[Faults], *, drawn: bool = False) -> None:
        self._drawn = drawn
        self.kafka, self.table = Interrupted(version, self), InterruptedTable(self)
        self._waiting = iter(drivers)
        self._number = 0
        self._running: list[tuple[Faults, Iterator[int]]] = []
        self.done = 0  # micro-batches that Spark has recorded

    def start(self, faults: Faults) -> None:
        """A driver goes on after the checkpoint's last batch, until an error ends it or there is nothing to do."""
        self._number += 1
        name = f"run {self._number}"
        transaction = driver(self.kafka, self.table)
        self._running.append((faults, iter(range(1_000_000))))
        try:
            for number in range(self.done, BATCHES):
                values = [b"%s by %s" % (row, name.encode()) if self._drawn else row for row in rows_of(number)]
                run(transaction, number, run=name, values=values)
                self.done = max(self.done, number + 1)
                for content in (self.kafka.values, self.table.rows):
                    found = [row for row in content if row.startswith(b"%d " % number)]
                    assert len(found) == len(values), f"{name}, batch {number}"
        except (KafkaEosError, Killed):
            pass
        finally:
            self._running.pop()

    @contextmanager
    def event(self, lose: Callable[[], object]) -> Iterator[bool]:
        """A request, or a call of the table. Yields whether it arrives; `lose` happens if nothing is answered."""
        faults, numbers = self._running[-1] if self._running else ({}, iter([0]))
        fault = faults.get(next(numbers))
        if fault == "killed before":
            raise Killed
        if fault == "overtaken before":
            self.start_next()
        if fault == "timed out":
            self.kafka.time_out()
        yield fault != "lost"
        if fault == "killed after":
            raise Killed
        if fault == "overtaken after":
            self.start_next()
        if fault in ("lost", "unanswered"):
            lose()

    def start_next(self) -> None:
        if (faults := next(self._waiting, None)) is not None:
            self.start(faults)

    def ends_well(self, *, timed_out: bool) -> None:
        """Whatever happened: a driver without faults completes the batch in flight, and those after it."""
        for faults in self._waiting:
            self.start(faults)
        if timed_out:
            self.kafka.time_out()
        self.start({})
        assert self.done == BATCHES
        if self._drawn:
            assert self.kafka.values == self.table.rows
        else:
            both_have(self.kafka, self.table, *range(BATCHES))


class Interrupted(Kafka):
    """Each request is an event."""

    def __init__(self, version: int, history: History) -> None:
        super().__init__(version)
        self._history = history

    def handle(self, node, api, version, request):
        lost: list[bool] = []
        answer = None
        with self._history.event(lambda: lost.append(True)) as arrives:
            if arrives:
                answer = super().handle(node, api, version, request)
        return None if lost else answer


class InterruptedTable(Table):
    """Each call is an event."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def held(self):
        with self._history.event(fail) as arrives:
            return super().held() if arrives else None

    def commit(self, rows, token, *, after):
        with self._history.event(fail) as arrives:
            if arrives:
                super().commit(rows, token, after=after)


def fail() -> None:
    raise Lost


def drivers_with(actions: tuple[str, ...]) -> st.SearchStrategy[list[Faults]]:
    return st.lists(st.dictionaries(st.integers(0, EVENTS), st.sampled_from(actions), max_size=3), max_size=4)


MANY = int(os.environ.get("HISTORIES", "0"))  # for a longer search


@settings(max_examples=MANY or 100, deadline=None)
@given(version=st.sampled_from([1, 2]), drivers=drivers_with(ACTIONS), timed_out=st.booleans())
def test_whatever_happens_to_the_drivers_both_have_each_row_once(version, drivers, timed_out):
    History(version, drivers).ends_well(timed_out=timed_out)


@settings(max_examples=MANY or 100, deadline=None)
@given(version=st.sampled_from([1, 2]), drivers=drivers_with(ALONE))
def test_drivers_one_after_another_compute_no_batch_again_that_the_table_has(version, drivers):
    History(version, drivers, drawn=True).ends_well(timed_out=False)


@pytest.mark.parametrize("timed_out", [False, True], ids=["in time", "after the timeout"])
@pytest.mark.parametrize("version", [2, 1], ids=["TV2", "TV1"])
@pytest.mark.parametrize("action", ["killed before", "killed after", "overtaken before", "overtaken after"])
def test_a_driver_may_be_interrupted_at_every_event(version, action, timed_out):
    for number in range(EVENTS):
        History(version, [{number: action}, {}]).ends_well(timed_out=timed_out)
