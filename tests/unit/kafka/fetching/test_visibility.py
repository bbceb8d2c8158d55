"""Answers are written as strings: `x` for a visible batch, `.` for one that is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spark_kafka_eos.kafka.fetching.visibility import visible
from spark_kafka_eos.kafka.partitions import IsolationLevel
from spark_kafka_eos.kafka.wire.batch_header import CONTROL, TRANSACTIONAL, AbortedTransaction, RecordBatchHeader
from spark_kafka_eos.kafka.wire.columns import Int64s

# The type of a control batch; "other" for one that does not end a transaction.
Marker = Literal["abort", "commit", "other"]


def table(batches: Sequence[RecordBatchHeader]) -> NDArray[np.void]:
    names = [each.name for each in fields(RecordBatchHeader)]
    rows = [tuple(getattr(batch, name) for name in names) for batch in batches]
    return np.array(rows, [(name, np.int64) for name in names])


def row_by_row(
    batches: Sequence[RecordBatchHeader],
    aborted: Sequence[AbortedTransaction],
    marker: Callable[[int], Marker],
) -> list[bool]:
    """As the Java client does it (CompletedFetch): batch by batch, with the set of producers that are aborting."""
    pending = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborting: set[int] = set()
    out = []
    for number, batch in enumerate(batches):
        while pending and pending[-1].first_offset < batch.next_offset:
            aborting.add(pending.pop().producer_id)
        if batch.is_control:
            if batch.producer_id in aborting and marker(number) == "abort":
                aborting.remove(batch.producer_id)
            out.append(False)
        else:
            out.append(not (batch.is_transactional and batch.producer_id in aborting))
    return out


@dataclass
class Log:
    """A partition as a leader keeps it: batches, markers, and its index of aborted transactions."""

    batches: list[RecordBatchHeader] = field(default_factory=list)
    markers: list[Marker | None] = field(default_factory=list)
    index: list[tuple[AbortedTransaction, int]] = field(default_factory=list)  # with the marker's offset
    open: dict[int, int] = field(default_factory=dict)  # producer id -> first offset
    truth: list[str] = field(default_factory=list)  # per batch: "data", "control", or "open <producer>:<first offset>"

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def append(self, producer_id: int, attributes: int, records: int, marker: Marker | None = None) -> None:
        header = RecordBatchHeader(
            position=len(self.batches), base_offset=self.end, batch_length=100, partition_leader_epoch=0, magic=2,
            crc=0, attributes=attributes, last_offset_delta=records - 1, base_timestamp=0, max_timestamp=0,
            producer_id=producer_id, producer_epoch=0, base_sequence=0, record_count=records,
        )  # fmt: skip
        self.batches.append(header)
        self.markers.append(marker)

    def plain(self, records: int = 1, producer_id: int = -1) -> Log:
        self.append(producer_id, 0, records)
        self.truth.append("data")
        return self

    def data(self, producer_id: int, records: int = 1) -> Log:
        self.open.setdefault(producer_id, self.end)
        self.truth.append(f"{producer_id}:{self.open[producer_id]}")
        self.append(producer_id, TRANSACTIONAL, records)
        return self

    def marker(self, producer_id: int, marker: Marker) -> Log:
        first = self.open.pop(producer_id, None)
        if first is not None:
            outcome = "data" if marker == "commit" else "aborted"
            self.truth = [outcome if one == f"{producer_id}:{first}" else one for one in self.truth]
            if marker == "abort":
                self.index.append((AbortedTransaction(producer_id=producer_id, first_offset=first), self.end))
        self.append(producer_id, TRANSACTIONAL | CONTROL, 1, marker)
        self.truth.append("control")
        return self

    def fetch(self, first: int, count: int, isolation_level: IsolationLevel = "read_committed") -> list[bool]:
        """Batches `first` to `first + count`, with the list that a leader adds to them."""
        batches = self.batches[first : first + count]
        if not batches:
            return []
        start, end = batches[0].base_offset, batches[-1].next_offset
        aborted = [one for one, last in self.index if last >= start and one.first_offset < end]
        return self.shown(batches, aborted, isolation_level)

    def shown(
        self,
        batches: Sequence[RecordBatchHeader],
        aborted: Sequence[AbortedTransaction],
        isolation_level: IsolationLevel = "read_committed",
    ) -> list[bool]:
        """Of each batch whether it is visible."""

        def aborts(rows: Int64s) -> NDArray[np.bool_]:
            return np.array([self.read_marker(batches[row]) == "abort" for row in rows], np.bool_)

        return [bool(one) for one in visible(table(batches), aborted, aborts, isolation_level)]

    def read_marker(self, batch: RecordBatchHeader) -> Marker:
        marker = self.markers[batch.position]
        assert marker is not None, "only control batches have one"
        return marker

    def all(self, isolation_level: IsolationLevel = "read_committed") -> list[bool]:
        return self.fetch(0, len(self.batches), isolation_level)


def shown(log: Log) -> str:
    return "".join("x" if one else "." for one in log.all())


def test_a_log_without_transactions_is_wholly_visible() -> None:
    assert shown(Log().plain(3).plain(producer_id=9)) == "xx"


def test_no_batches_show_nothing() -> None:
    assert Log().all() == []


def test_committed_data_is_visible_and_its_marker_is_not() -> None:
    assert shown(Log().data(1).data(1).marker(1, "commit")) == "xx."


def test_aborted_data_is_invisible() -> None:
    assert shown(Log().data(1, 5).data(1).marker(1, "abort")) == "..."


def test_the_next_transaction_of_an_aborted_producer_is_visible() -> None:
    assert shown(Log().data(1).marker(1, "abort").data(1).marker(1, "commit")) == "..x."


def test_a_committed_transaction_before_an_aborted_one_of_the_same_producer_is_visible() -> None:
    assert shown(Log().data(1).marker(1, "commit").data(1).marker(1, "abort")) == "x..."


def test_a_producer_may_abort_twice() -> None:
    log = Log().data(1).marker(1, "abort").data(1).marker(1, "commit").data(1).marker(1, "abort").data(1)
    assert shown(log.marker(1, "commit")) == "..x...x."


def test_a_producer_may_abort_twice_in_a_row() -> None:
    assert shown(Log().data(1).marker(1, "abort").data(1).marker(1, "abort")) == "...."


def test_interleaved_producers_do_not_hide_each_other() -> None:
    log = Log().data(1).data(2).plain().data(1).data(2).marker(1, "abort").data(2).marker(2, "commit")
    assert shown(log) == ".xx.x.x."


def test_batches_outside_transactions_are_visible_even_from_an_aborting_producer_id() -> None:
    assert shown(Log().data(1).plain(producer_id=1).marker(1, "abort")) == ".x."


def test_an_aborted_transaction_that_begins_inside_a_batch_range_hides_from_its_first_batch_on() -> None:
    log = Log().plain(10).data(1, 10).marker(1, "abort")
    assert log.shown(log.batches, [AbortedTransaction(producer_id=1, first_offset=10)]) == [True, False, False]


def test_an_abort_spans_two_fetches_since_each_lists_it() -> None:
    log = Log().data(1).data(1).data(1).marker(1, "abort").plain()
    assert log.fetch(0, 2) + log.fetch(2, 3) == [False, False, False, False, True]


def test_a_fetch_that_starts_inside_an_aborted_transaction_hides_the_rest_of_it() -> None:
    log = Log().data(1).data(1).marker(1, "abort").data(1).marker(1, "commit")
    assert log.fetch(1, 4) == [False, False, True, False]


def test_a_fetch_that_starts_at_the_abort_marker_shows_what_follows() -> None:
    log = Log().data(1).marker(1, "abort").data(1).marker(1, "commit")
    assert log.fetch(1, 3) == [False, True, False]


def test_a_control_batch_that_ends_no_transaction_is_invisible_and_ends_none() -> None:
    log = Log().data(1)
    log.append(1, TRANSACTIONAL | CONTROL, 1, "other")
    log.data(1).marker(1, "abort")
    assert log.shown(log.batches, [AbortedTransaction(producer_id=1, first_offset=0)]) == [False] * 4


def test_the_list_may_come_in_any_order() -> None:
    log = Log().data(1).data(2).marker(2, "abort").data(2).marker(1, "abort").marker(2, "commit")
    listed = [one for one, _ in log.index]
    for aborted in (listed, listed[::-1]):
        assert log.shown(log.batches, aborted) == [False, False, False, True, False, False]


def test_read_uncommitted_shows_all_but_control_batches() -> None:
    log = Log().data(1).marker(1, "abort").data(2).plain()
    assert log.all("read_uncommitted") == [True, False, True, True]


def test_only_markers_of_producers_that_abort_are_read() -> None:
    log = Log().data(1).data(2).marker(2, "commit").marker(1, "abort").marker(1, "commit")
    read: list[int] = []

    def aborts(rows: Int64s) -> NDArray[np.bool_]:
        read.extend(rows.tolist())
        return np.array([log.read_marker(log.batches[row]) == "abort" for row in rows], np.bool_)

    found = visible(table(log.batches), [one for one, _ in log.index], aborts)
    assert found.tolist() == [False, True, False, False, False]
    assert read == [3, 4]


@given(st.data())
def test_any_batches_with_any_list_are_as_visible_as_batch_by_batch(data: st.DataObject) -> None:
    """Also where list and batches contradict each other."""
    log, producers = Log(), st.integers(1, 3)
    markers: list[Marker] = ["abort", "commit", "other"]
    kinds = st.sampled_from([0, TRANSACTIONAL, TRANSACTIONAL, CONTROL, TRANSACTIONAL | CONTROL])
    for producer_id, attributes, records, marker in data.draw(
        st.lists(st.tuples(producers, kinds, st.integers(1, 3), st.sampled_from(markers)))
    ):
        log.append(producer_id, attributes, records, marker)
    listed = st.builds(AbortedTransaction, producer_id=producers, first_offset=st.integers(-1, log.end + 1))
    aborted = data.draw(st.lists(listed, max_size=6))
    assert log.shown(log.batches, aborted) == (
        row_by_row(log.batches, aborted, lambda number: log.read_marker(log.batches[number]))
        if aborted
        else [not batch.is_control for batch in log.batches]
    )


@given(st.data())
def test_however_a_log_is_cut_into_fetches_exactly_committed_data_is_visible(data: st.DataObject) -> None:
    log = Log()
    actions = st.tuples(
        st.sampled_from(["data", "data", "plain", "commit", "abort"]), st.integers(1, 4), st.integers(1, 3)
    )
    for action, producer_id, records in data.draw(st.lists(actions, max_size=30)):
        match action:
            case "data":
                log.data(producer_id, records)
            case "plain":
                log.plain(records, producer_id)
            case "commit" | "abort" as marker:
                log.marker(producer_id, marker)
    # Up to the last stable offset: nothing open is fetched.
    stable = min(log.open.values(), default=log.end)
    count = sum(batch.base_offset < stable for batch in log.batches)
    position, answer = data.draw(st.integers(0, count)), list[bool]()
    first = position
    while position < count:
        taken = data.draw(st.integers(1, count - position))
        answer += log.fetch(position, taken)
        position += taken
    assert answer == [one == "data" for one in log.truth[first:count]]
