"""Reading ranges of offsets as a state machine: what to ask which leader, and what an answer means. No sockets here.

`FetchPlan.next` says what to do next, and what came of it is told by a method, or by `failed`:

    Ask         send a request to a leader                  nothing: its answer is received later
    Receive     wait for a leader's answer                  answered
    Locate      look up who leads partitions                located
    FindBounds  look up where partitions begin and end      bounded
    Wait        sleep
    Fetched     hand it to the reader

A range is in one place at any time, waiting or in flight, until it is read to its end:

    waiting --Locate--> waiting, placed --Ask--> in flight --answered, failed--> waiting
    waiting, out of range --FindBounds--> waiting, to be located anew (or DataLoss)

Not obvious:
- A range ends by position: offsets have gaps (control batches, aborted data, compaction), so counting records would
  wait for ever.
- The next request goes out before what came is handed over, and that before anything that takes time or may fail.
- What the reader takes, and what a broker throttles, counts against no budget: in that time nobody was asked.
- An empty answer of a throttled broker says nothing about its log (KIP-219). If no other ever comes, it is the broker
  that is given up on, not its data.
- That the records belong together is checked twice. Requests go by topic id, and a topic created again has another.
  And each names the leader epoch of the last record batch that came (KIP-595, as followers do), so a leader whose log
  was truncated by an unclean election says so instead of giving the records that now stand at those offsets.

Which errors pass: FetchCollector and FetchSessionHandler of Kafka's Java client, by way of `core.error_codes`.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_eos.core.acl_hints import Subject
from spark_kafka_eos.core.backoff import OUTDATED_LEADER_MS, Budget, Clock, Stopwatch, delay_or_raise
from spark_kafka_eos.core.error_codes import RETRIABLE, Reaction, failure, reaction
from spark_kafka_eos.core.fetch_sizes import FetchSizes
from spark_kafka_eos.core.fetch_steps import (
    Action,
    Answer,
    Ask,
    Bounds,
    EpochEndOffset,
    Fetched,
    FindBounds,
    Locate,
    Outcome,
    Part,
    Place,
    Receive,
    Refused,
    Request,
    Wait,
)
from spark_kafka_eos.errors import BrokerUnreachable, DataLoss, KafkaEosError
from spark_kafka_eos.model import OffsetRange, TopicPartition

# What is known here, or to the broker that is asked, may be older than the plan.
_OUTDATED_METADATA_MS = 2_000
_GO_ON = "Set failOnDataLoss to false to go on with what is left, or start with a new checkpoint."


@dataclass(slots=True, kw_only=True)
class _Cursor:
    partition: TopicPartition
    position: int
    end: int
    topic_id: uuid.UUID | None  # from the plan, or once data came: a topic created again must not be taken for the same
    epoch: int = -1  # of the last record batch that came
    place: Place | None = None  # unless it has to be looked up
    is_outdated: bool = False  # what was looked up of its place before, if it has none now
    is_out_of_range: bool = False  # says its leader
    end_doubted: Budget | None = None  # how long the leader's word is doubted that its log ends before the position
    topic_doubted: Budget | None = None  # how long it is doubted that the topic was created again


class FetchPlan:
    """Reads `ranges`, at most one of each partition, to their ends; an empty one asks nobody anything.

    Gives up when no range made progress within `patience_ms`, of the time that counts (see above). `budget` makes a
    budget of so many milliseconds by the clock it is given. Once a method has raised, the plan is void.
    """

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        *,
        sizes: FetchSizes,
        clock: Clock,
        budget: Callable[[int, Clock], Budget],
        patience_ms: int,
    ) -> None:
        if len({wanted.partition for wanted in ranges}) < len(ranges):
            raise ValueError("a partition may have one range only")
        self._sizes, self._clock = sizes, clock
        self._time = Stopwatch(clock)
        self._new_budget = budget
        self._progress = budget(patience_ms, self._time)  # restarts when something comes
        self._silence = budget(patience_ms, self._time)  # and when a broker says that it throttles
        # In the order in which they are asked for: whoever got nothing is served first next time.
        self._waiting: dict[TopicPartition, _Cursor] = {
            wanted.partition: _Cursor(
                partition=wanted.partition, position=wanted.start, end=wanted.end, topic_id=wanted.topic_id
            )
            for wanted in ranges
            if wanted.start < wanted.end
        }
        self._in_flight: dict[int, dict[TopicPartition, _Cursor]] = {}  # by leader, the first asked first
        self._found: deque[Fetched] = deque()
        self._trouble: tuple[KafkaEosError, Reaction] | None = None  # to be waited for
        self._throttled_until: dict[int, float] = {}  # by leader

    def next(self) -> Action | None:
        """What to do now; None when every range is read. Raises what a range failed with once no time is left."""
        self._time.start()
        action = (
            self._ask()
            or self._hand_over()
            or self._find_bounds()
            or self._back_off()
            or self._locate()
            or self._receive()
            or self._wait_for_throttle()
        )
        if isinstance(action, Fetched) or (isinstance(action, Wait) and action.because is None):
            self._time.stop()
        return action

    def _ask(self) -> Ask | None:
        """An idle leader for all that is waiting for it."""
        if self._trouble is not None:
            return None
        by_leader: dict[int, list[_Cursor]] = {}
        for cursor in self._waiting.values():
            if cursor.place is not None and not cursor.is_out_of_range:
                by_leader.setdefault(cursor.place.leader, []).append(cursor)
        now = self._clock()
        for leader, cursors in by_leader.items():
            if leader in self._in_flight or self._throttled_until.get(leader, now) > now:
                continue
            self._in_flight[leader] = {cursor.partition: self._waiting.pop(cursor.partition) for cursor in cursors}
            return Ask(leader=leader, parts=tuple(self._part(cursor) for cursor in cursors))
        return None

    def _part(self, cursor: _Cursor) -> Part:
        assert cursor.place is not None
        return Part(
            partition=cursor.partition,
            topic_id=cursor.place.topic_id,
            position=cursor.position,
            end=cursor.end,
            leader_epoch=cursor.place.leader_epoch,
            last_epoch=cursor.epoch,
            max_bytes=self._sizes.bytes_for(cursor.partition, cursor.end - cursor.position),
        )

    def _hand_over(self) -> Fetched | None:
        return self._found.popleft() if self._found else None

    def _find_bounds(self) -> FindBounds | None:
        partitions = tuple(tp for tp, cursor in self._waiting.items() if cursor.is_out_of_range)
        return FindBounds(partitions=partitions) if partitions else None

    def _back_off(self) -> Wait | None:
        if self._trouble is None:
            return None
        (error, react), self._trouble = self._trouble, None
        return Wait(seconds=delay_or_raise(error, react, self._progress), because=error)

    def _locate(self) -> Locate | None:
        cursors = [cursor for cursor in self._waiting.values() if cursor.place is None]
        if not cursors:
            return None
        return Locate(
            partitions=tuple(cursor.partition for cursor in cursors),
            anew=frozenset(cursor.partition.topic for cursor in cursors if cursor.is_outdated),
        )

    def _receive(self) -> Receive | None:
        return Receive(leader=next(iter(self._in_flight))) if self._in_flight else None

    def _wait_for_throttle(self) -> Wait | None:
        if not self._waiting:
            return None
        leaders = {cursor.place.leader for cursor in self._waiting.values() if cursor.place is not None}
        until = min(self._throttled_until[leader] for leader in leaders)
        return Wait(seconds=max(0.0, until - self._clock()), because=None)

    # -- what came of it

    def located(self, places: Mapping[TopicPartition, Place]) -> None:
        """All that `Locate` asked for. Raises DataLoss if a topic was created again."""
        for partition, place in places.items():
            cursor = self._waiting[partition]
            if cursor.topic_id in (None, place.topic_id):
                cursor.place, cursor.topic_doubted = place, None
            else:
                cursor.topic_doubted = cursor.topic_doubted or self._new_budget(_OUTDATED_METADATA_MS, self._time)
                self._doubt(cursor, _created_again(cursor, place), cursor.topic_doubted)

    def bounded(self, bounds: Mapping[TopicPartition, Bounds]) -> None:
        """All that `FindBounds` asked for. Raises DataLoss if records were deleted, or if a log is still shorter than
        the plan when any leader knows that it is one."""
        for partition, held in bounds.items():
            cursor = self._waiting[partition]
            cursor.is_out_of_range = False
            loss = _out_of_range(cursor, held)
            if cursor.position < held.first:
                raise loss
            cursor.end_doubted = cursor.end_doubted or self._new_budget(OUTDATED_LEADER_MS, self._time)
            self._doubt(cursor, loss, cursor.end_doubted)

    def failed(self, action: Request, error: KafkaEosError) -> None:
        """What was to be done could not be done: the broker was not reached, or no answer came."""
        match action:
            case Ask(leader=leader) | Receive(leader=leader):
                cursors = list(self._in_flight.pop(leader).values())
            case Locate(partitions=partitions) | FindBounds(partitions=partitions):
                cursors = [self._waiting[partition] for partition in partitions]
        for cursor in cursors:
            cursor.is_out_of_range = False
        self._again(cursors, error, Reaction.REFRESH_METADATA)

    def answered(self, leader: int, answer: Answer) -> None:
        """The answer to the request in flight to `leader`. Raises the first error in it that no retry mends."""
        asked = self._in_flight.pop(leader)
        if answer.throttle_ms:
            self._throttled_until[leader] = self._clock() + answer.throttle_ms / 1000
        if answer.error_code:
            error, react = _failure(answer.error_code, f"a request to {answer.where}")
            self._again(asked.values(), error, react)
            return
        if self._take(asked, answer.parts):
            self._progress.restart()
            self._silence.restart()
        elif answer.throttle_ms:
            self._silence.restart()
            if self._progress.spent:
                self._trouble = _throttled(answer.where, asked.values()), Reaction.RETRY_SAME
        elif self._is_settled() and self._silence.spent:
            raise _stuck(answer.where, asked.values())

    def _take(self, asked: Mapping[TopicPartition, _Cursor], parts: Mapping[TopicPartition, Outcome]) -> bool:
        """Move the cursors, those that got nothing before the others; returns whether there is anything to read."""
        left, moved = dict(asked), []
        for partition, outcome in parts.items():
            cursor = left.pop(partition)
            match outcome:
                case EpochEndOffset():
                    raise _truncated(cursor, outcome)
                case Refused(error_code=code):
                    self._refused(cursor, code)
                case Fetched(batches=()):
                    self._waiting[partition] = cursor
                case Fetched():
                    self._advance(cursor, outcome)
                    moved.append(cursor)
        for cursor in (*left.values(), *moved):
            if cursor.position < cursor.end:
                self._waiting[cursor.partition] = cursor
        return bool(moved)

    def _refused(self, cursor: _Cursor, code: int) -> None:
        if reaction("Fetch", code) is Reaction.DATA_LOSS:
            cursor.is_out_of_range = True
            self._waiting[cursor.partition] = cursor
        else:
            error, react = _failure(code, Subject(partition=cursor.partition, note=f" at offset {cursor.position}"))
            self._again([cursor], error, react)

    def _advance(self, cursor: _Cursor, found: Fetched) -> None:
        first, last = found.batches[0], found.batches[-1]
        covered = last.next_offset - max(cursor.position, first.base_offset)
        self._sizes.learn(cursor.partition, size=last.position + last.size, offsets=covered)
        assert cursor.place is not None
        cursor.position, cursor.topic_id = found.next_offset, cursor.place.topic_id
        cursor.epoch, cursor.end_doubted = last.partition_leader_epoch, None
        self._found.append(found)

    def _again(self, cursors: Iterable[_Cursor], error: KafkaEosError, react: Reaction) -> None:
        """These are asked for again, after a moment."""
        for cursor in cursors:
            self._waiting[cursor.partition] = cursor
            if react is Reaction.REFRESH_METADATA:
                cursor.place, cursor.is_outdated = None, True
        self._trouble = self._trouble or (error, react)

    def _doubt(self, cursor: _Cursor, loss: DataLoss, doubted: Budget) -> None:
        """Raises the loss once it cannot be doubted any longer."""
        if doubted.spent:
            raise loss
        self._again([cursor], loss, Reaction.REFRESH_METADATA)

    def _is_settled(self) -> bool:
        """Nothing is being retried or doubted."""
        return self._trouble is None and not any(cursor.is_out_of_range for cursor in self._waiting.values())


def _failure(code: int, subject: Subject | str) -> tuple[KafkaEosError, Reaction]:
    """Raises it if no retry mends it."""
    error, react = failure("Fetch", code, subject), reaction("Fetch", code)
    if react not in RETRIABLE:
        raise error
    return error, react


def _created_again(cursor: _Cursor, place: Place) -> DataLoss:
    return DataLoss(
        f"topic {cursor.partition.topic!r} was deleted and created again while {cursor.partition} was being read at "
        f"offset {cursor.position}: offsets up to {cursor.end} were to be read of topic id {cursor.topic_id}, "
        f"now it is {place.topic_id}",
        action=_GO_ON,
    )


def _out_of_range(cursor: _Cursor, held: Bounds) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: offsets from {cursor.position} to {cursor.end} were to be read, "
        f"but the broker holds {held.first} to {held.end}",
        action=_GO_ON,
    )


def _truncated(cursor: _Cursor, diverging: EpochEndOffset) -> DataLoss:
    return DataLoss(
        f"{cursor.partition}: the leader's log was truncated (unclean leader election?): records up to offset "
        f"{cursor.position} of leader epoch {cursor.epoch} were read, but it has those of epoch {diverging.epoch} "
        f"up to {diverging.end_offset} only, and offsets from there to {cursor.end} are lost or replaced",
        action=_GO_ON,
    )


def _stuck(where: str, cursors: Iterable[_Cursor]) -> DataLoss:
    return DataLoss(
        f"{where} has had nothing to give for {_ranges(cursors)} within delivery.timeout.ms",
        action="Either a transaction is still open below the end of the range, or the end of the log was lost.",
    )


def _throttled(where: str, cursors: Iterable[_Cursor]) -> BrokerUnreachable:
    return BrokerUnreachable(
        f"{where} has only throttled this client and given nothing for {_ranges(cursors)} within delivery.timeout.ms, "
        "although it was left alone each time for as long as it said",
        action="Raise the broker's quota of this user or client id (consumer_byte_rate, request_percentage).",
    )


def _ranges(cursors: Iterable[_Cursor]) -> str:
    return ", ".join(f"{cursor.partition} from {cursor.position} to {cursor.end}" for cursor in cursors)
