"""What to fetch next from which broker, and what an answer means: reading offset ranges, without sockets. Pure.

`FetchPlan.next` returns the next step. The caller performs it and reports the result with the method on the right, or
with `failed` if the broker could not be reached:

    Ask         send a request to a broker                     (its answer comes with a later Receive)
    Receive     wait for the first answer of some brokers      answered
    Locate      look up the leaders of partitions              located
    FindBounds  look up where partitions start and end         bounded
    Wait        sleep, or wait for an answer if one is in flight
    Fetched     hand it to the reader

Until it is read to its end, a range is either waiting or in flight:

    waiting --Locate--> waiting, located --Ask--> in flight --answered, failed--> waiting
    waiting, out of range --FindBounds--> waiting, to be located again, or DataLoss

After an error, a range is held for a moment, while the others are read on.

What is not obvious:
- A range ends by position. Offsets have gaps (control batches, aborted data, compaction), so counting records could
  wait for ever.
- A read_committed answer ends at the last stable offset. If compaction has removed the records just below it, nothing
  ever comes that reaches the end of the range. So if nothing comes although the end is stable, a request with
  read_uncommitted peeks at where the log continues: at or after the end, the range is read.
- The next request is sent before fetched data is handed over, and data is handed over before any step that blocks or
  may fail. A range that is followed to the end of its log is requested only after that, when the reader has time for
  it: the answer, which comes with the first new record, would wait for the reader, and the records after it for the
  answer after that.
- The reader's own time and the time that brokers throttle us count towards no timeout.
- An empty answer of a throttling broker says nothing about its log (KIP-219). If no other kind of answer ever comes,
  that is BrokerUnreachable, not DataLoss.
- Three checks ensure that records belong together. Requests use the topic id, which changes when a topic is created
  again. Each names the leader epoch of the last record batch read (KIP-595, as followers do), so that a leader whose
  log was truncated by an unclean election reports it, instead of returning other records at the same offsets. And no
  record before the planned end may have a later epoch than this end: an election that loses nothing continues the log
  behind it. Epochs ascend in a log, so one header of an answer is looked at, and none while the leader is the same.
- A leader may send a reader that names its rack to a follower there (KIP-392). A follower knows less than its leader:
  its log and its high watermark lag behind, and it may be down. So only records count from a follower, and that there
  are some which had no room. After anything else, the leader is asked, for a while without the rack, and only the
  leader's answer may be an error or DataLoss.
- A leader of an earlier epoch than the range was planned with is not asked: it may lack records, or hold ones that have
  since been replaced. The broker that named it is outdated.

Which errors are retriable: see FetchCollector and FetchSessionHandler of Kafka's Java client, and
`protocol.error_codes`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from spark_kafka_eos.kafka.errors import DataLoss, KafkaEosError
from spark_kafka_eos.kafka.fetching.fetch_cursor import (
    Cursor,
    created_again,
    no_leader,
    out_of_range,
    outdated,
    replaced,
    retriable_failure,
    stuck,
    throttled,
    truncated,
    unusable_follower,
)
from spark_kafka_eos.kafka.fetching.fetch_sizes import FetchSizes
from spark_kafka_eos.kafka.fetching.fetch_steps import (
    Answer,
    Arrival,
    Ask,
    BrokerStep,
    EpochEndOffset,
    Fetched,
    FetchPartition,
    FindBounds,
    Locate,
    PartitionLeader,
    PartitionResult,
    ReadReplica,
    Receive,
    Refused,
    Step,
    Wait,
)
from spark_kafka_eos.kafka.partitions import NO_END, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.acl_hints import ResourceRef
from spark_kafka_eos.kafka.protocol.backoff import OUTDATED_LEADER_MS, Budget, Clock, Stopwatch, delay_or_raise
from spark_kafka_eos.kafka.protocol.error_codes import Reaction, failure, reaction
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader

# How long a follower is asked before the leader chooses again: metadata.max.age.ms, as in the Java client.
_REPLICA_SECONDS = 300.0
# How long only leaders are asked after a follower had no records. A broker that is down leaves the ISR sooner.
_LEADERS_SECONDS = 30.0
# How many record batches of each part of a response are looked at for the size of large ones.
_SIZES_SEEN = 16
# How long a different topic id may come from outdated metadata, here or on the broker that was asked.
_OUTDATED_METADATA_MS = 2_000


class FetchPlan:
    """Reads `ranges` to their ends: at most one per partition (else ValueError). Empty ranges need no request.

    Gives up if no range makes progress for `patience_ms`, counted as described above. `budget` returns a budget of the
    given milliseconds on the given clock. After a method has raised, the plan must not be used any more.

    `follows`: the ranges end after whatever their logs will have. Then all partitions of a broker are in each request,
    so that none waits for another one's long poll, and that nothing comes is no reason to give up: an answer without an
    error is progress, too.
    """

    def __init__(
        self,
        ranges: Sequence[OffsetRange],
        *,
        sizes: FetchSizes,
        clock: Clock,
        budget: Callable[[int, Clock], Budget],
        patience_ms: int,
        follows: bool = False,
    ) -> None:
        if len({offset_range.partition for offset_range in ranges}) < len(ranges):
            raise ValueError("a partition may have one range only")
        self._sizes, self._clock, self._follows = sizes, clock, follows
        self._time = Stopwatch(clock)
        self._new_budget = budget
        self._progress = budget(patience_ms, self._time)  # restarts when data comes
        self._silence = budget(patience_ms, self._time)  # restarts also when a broker throttles
        # In the order of the next request: partitions that got nothing come first.
        self._waiting: dict[TopicPartition, Cursor] = {
            offset_range.partition: Cursor(
                partition=offset_range.partition,
                position=offset_range.start,
                end=offset_range.end,
                topic_id=offset_range.topic_id,
                planned_epoch=offset_range.leader_epoch,
                epoch=offset_range.last_epoch,
            )
            for offset_range in ranges
            if offset_range.start < offset_range.end
        }
        self._in_flight: dict[int, dict[TopicPartition, Cursor]] = {}  # by broker, the first asked first
        self._ready: deque[Fetched] = deque()
        self._trouble: tuple[KafkaEosError, Reaction] | None = None  # to back off for
        self._troubled: dict[TopicPartition, Cursor] = {}
        self._throttled_until: dict[int, float] = {}  # by broker
        self._leaders_until = float("-inf")

    def next(self) -> Step | None:
        """The next step; None when all ranges are read. Raises the last error when the time is used up."""
        self._time.start()
        action = (
            (self._hand_over() if self._has_read_all() else self._ask())
            or self._ask()
            or self._hand_over()
            or self._find_bounds()
            or self._back_off()
            or self._locate()
            or self._receive()
            or self._wait_for_more()
        )
        if isinstance(action, Fetched) or (isinstance(action, Wait) and action.because is None):
            self._time.stop()
        return action

    def _ask(self) -> Ask | None:
        """A request to an idle broker for partitions that wait for it: the first ones, as many as it has room for."""
        if self._trouble is not None:
            return None
        now = self._clock()
        requests: dict[tuple[int, bool], list[Cursor]] = {}
        for cursor in self._waiting.values():
            if cursor.leader is not None and not cursor.is_out_of_range and cursor.held_until <= now:
                requests.setdefault((_node(cursor, cursor.leader, now), cursor.is_peek), []).append(cursor)
        for (node, is_peek), cursors in requests.items():
            if node in self._in_flight or self._throttled_until.get(node, now) > now:
                continue
            remaining = [(cursor.partition, cursor.end - cursor.position) for cursor in cursors]
            budgets = self._sizes.partition_budgets(node, remaining, all_of_them=self._follows)
            parts = tuple(_part(cursor, budget) for cursor, budget in zip(cursors, budgets, strict=False))
            self._in_flight[node] = {part.partition: self._waiting.pop(part.partition) for part in parts}
            with_rack = now >= self._leaders_until and not is_peek
            max_bytes = self._sizes.byte_budget(node)
            return Ask(node=node, parts=parts, max_bytes=max_bytes, with_rack=with_rack, is_peek=is_peek)
        return None

    def _has_read_all(self) -> bool:
        """Whether what is to be handed over reaches the ends of the logs that are followed."""
        return self._follows and all(part.reaches_end for part in self._ready)

    def _hand_over(self) -> Fetched | None:
        return self._ready.popleft() if self._ready else None

    def _find_bounds(self) -> FindBounds | None:
        now = self._clock()
        partitions = tuple(
            tp for tp, cursor in self._waiting.items() if cursor.is_out_of_range and cursor.held_until <= now
        )
        return FindBounds(partitions=partitions) if partitions else None

    def _back_off(self) -> Wait | None:
        if self._trouble is None:
            return None
        (error, react), self._trouble = self._trouble, None
        seconds = delay_or_raise(error, react, self._progress)
        for cursor in self._troubled.values():
            cursor.held_until = self._clock() + seconds
        self._troubled.clear()
        return Wait(seconds=seconds, because=error)

    def _locate(self) -> Locate | None:
        now = self._clock()
        cursors = [cursor for cursor in self._waiting.values() if cursor.leader is None and cursor.held_until <= now]
        if not cursors:
            return None
        return Locate(
            partitions=tuple(cursor.partition for cursor in cursors),
            outdated=frozenset(cursor.partition.topic for cursor in cursors if cursor.is_outdated),
        )

    def _receive(self) -> Receive | None:
        if not self._in_flight:
            return None
        return Receive(nodes=tuple(self._in_flight), seconds=self._until_more())

    def _wait_for_more(self) -> Wait | None:
        return Wait(seconds=self._until_more(), because=None) if self._waiting else None

    def _until_more(self) -> float:
        """Seconds until a partition that waits is no longer held, and its broker no longer throttles."""
        now, until = self._clock(), math.inf
        for cursor in self._waiting.values():
            node = None if cursor.leader is None else _node(cursor, cursor.leader, now)
            if node is None or node not in self._in_flight:
                throttled = now if node is None else self._throttled_until.get(node, now)
                until = min(until, max(cursor.held_until, throttled))
        return max(0.0, until - now)

    # -- what came of it

    def located(self, leaders: Mapping[TopicPartition, PartitionLeader]) -> None:
        """The leaders of all partitions of a `Locate`. Raises DataLoss if a topic was created again."""
        for partition, leader in leaders.items():
            cursor = self._waiting[partition]
            if leader.node < 0:
                self._again([cursor], *no_leader(cursor))
            elif cursor.topic_id not in (None, leader.topic_id):
                cursor.topic_doubted = cursor.topic_doubted or self._new_budget(_OUTDATED_METADATA_MS, self._time)
                self._doubt(cursor, created_again(cursor, leader), cursor.topic_doubted)
            elif leader.leader_epoch < cursor.planned_epoch:
                self._again([cursor], outdated(cursor, leader), Reaction.REFRESH_METADATA)
            else:
                cursor.leader, cursor.topic_doubted = leader, None

    def bounded(self, bounds: Iterable[OffsetRange]) -> None:
        """What all partitions of a `FindBounds` hold, up to their end at the isolation level of the read.

        Raises DataLoss if records were deleted, or if the log is still too short when even a leader that was paused
        must have heard of its successor.
        """
        for available in bounds:
            cursor = self._waiting[available.partition]
            cursor.is_out_of_range = False
            loss = out_of_range(cursor, available)
            if cursor.position < available.start:
                raise loss
            cursor.end_doubted = cursor.end_doubted or self._new_budget(OUTDATED_LEADER_MS, self._time)
            self._doubt(cursor, loss, cursor.end_doubted)

    def failed(self, action: BrokerStep, error: KafkaEosError, arrival: Arrival | None = None) -> None:
        """The step could not be performed: the broker (the only one of a Receive) could not be reached, or did not
        answer. `arrival`: what came of its answer.
        """
        match action:
            case Ask(node=node) | Receive(nodes=(node,)):
                cursors = list(self._in_flight.pop(node).values())
                if arrival is not None:
                    self._sizes.arrived(node, arrival)
            case Locate(partitions=partitions) | FindBounds(partitions=partitions):
                cursors = [self._waiting[partition] for partition in partitions]
        for cursor in cursors:
            cursor.is_out_of_range = False
            self._ask_leader(cursor)
        self._again(cursors, error, Reaction.REFRESH_METADATA)

    def answered(self, node: int, answer: Answer) -> None:
        """The answer to the request in flight to `node`. Raises the first error in it that no retry mends."""
        asked = self._in_flight.pop(node)
        was_full = answer.arrival.size > self._sizes.byte_budget(node) // 2
        self._sizes.arrived(node, answer.arrival)
        if answer.throttle_ms:
            self._throttled_until[node] = self._clock() + answer.throttle_ms / 1000
        of_leader = [cursor for cursor in asked.values() if cursor.replica is None]
        if answer.error_code:
            context = f"a request to {answer.address}"
            if of_leader:
                error, react = retriable_failure(answer.error_code, context)
            else:
                error, react = failure("Fetch", answer.error_code, context), Reaction.RETRY_SAME
            for cursor in asked.values():
                self._ask_leader(cursor)
            self._again(asked.values(), error, react)
            return
        was_peek = any(cursor.is_peek for cursor in asked.values())
        if self._take(asked, answer.parts, was_full=was_full) or (self._follows and _is_served(answer.parts)):
            self._progress.restart()
            self._silence.restart()
        elif answer.throttle_ms:
            self._silence.restart()
            if self._progress.spent:
                self._trouble = throttled(answer.address, asked.values()), Reaction.RETRY_SAME
        elif (
            not self._follows
            and self._is_settled()
            and self._silence.spent
            and (silent := [cursor for cursor in of_leader if cursor.replica is None])
        ):
            raise stuck(answer.address, silent)
        elif not was_peek:  # else an ordinary request comes next
            _peek(of_leader, answer.parts)

    def _take(
        self,
        asked: Mapping[TopicPartition, Cursor],
        parts: Mapping[TopicPartition, PartitionResult],
        *,
        was_full: bool,
    ) -> bool:
        """Advance the cursors, and return whether any moved. In the next request, those that got nothing, although
        there is something, come before them, and those for which there is nothing after them.
        """
        unanswered = dict(asked)
        first = next(iter(asked.values()))
        moved: list[Cursor] = []
        idle: list[Cursor] = []
        for partition, outcome in parts.items():
            cursor = unanswered.pop(partition)
            match outcome:
                case Fetched() if cursor.is_peek:
                    moved += self._peeked(cursor, outcome)
                case Fetched() if outcome.batches:
                    moved += self._advanced(cursor, outcome)
                case _ if (cursor is first or not _had_no_room(cursor, outcome, was_full)) and self._ask_leader(cursor):
                    self._waiting[partition] = cursor
                    self._trouble = self._trouble or unusable_follower(cursor, outcome)
                case ReadReplica(node=node):
                    cursor.replica, cursor.replica_until = node, self._clock() + _REPLICA_SECONDS
                    self._waiting[partition] = cursor
                case EpochEndOffset():
                    raise truncated(cursor, outcome)
                case Refused(error_code=code):
                    self._refused(cursor, code)
                case Fetched():
                    idle += self._got_nothing(cursor, outcome, was_full)
        for cursor in unanswered.values():
            self._ask_leader(cursor)
        for cursor in (*unanswered.values(), *moved, *idle):
            if cursor.position < cursor.end:
                self._waiting[cursor.partition] = cursor
        return bool(moved)

    def _got_nothing(self, cursor: Cursor, outcome: Fetched, was_full: bool) -> list[Cursor]:
        """The cursor if the log has nothing for it, else none: its next record batch was too large."""
        if outcome.last_stable_offset <= cursor.position:
            return [cursor]
        if outcome.lacking or not was_full:
            self._sizes.note_truncated(cursor.partition, outcome.lacking)
        self._waiting[cursor.partition] = cursor
        return []

    def _peeked(self, cursor: Cursor, seen: Fetched) -> list[Cursor]:
        """The cursor if the log continues at or after its end, else none: it waits for an ordinary request."""
        cursor.is_peek = False
        if seen.batches and seen.batches[0].base_offset >= cursor.end:
            cursor.position = cursor.end
            return [cursor]
        self._waiting[cursor.partition] = cursor
        return []

    def _ask_leader(self, cursor: Cursor) -> bool:
        """Give up the follower that `cursor` was read from; False if it was read from its leader."""
        if cursor.replica is None:
            return False
        cursor.replica = None
        self._leaders_until = self._clock() + _LEADERS_SECONDS
        return True

    def _refused(self, cursor: Cursor, code: int) -> None:
        if reaction("Fetch", code) is Reaction.DATA_LOSS:
            cursor.is_out_of_range = True
            self._waiting[cursor.partition] = cursor
        else:
            error, react = retriable_failure(
                code, ResourceRef(partition=cursor.partition, note=f" at offset {cursor.position}")
            )
            self._again([cursor], error, react)

    def _advanced(self, cursor: Cursor, part: Fetched) -> list[Cursor]:
        """The cursor, behind what has come; none if a follower has another log: its leader is asked instead."""
        if (other := _of_another_log(cursor, part)) is not None:
            if not self._ask_leader(cursor):
                raise replaced(cursor, other)
            self._waiting[cursor.partition] = cursor
            return []
        first, last = part.batches[0], part.batches[-1]
        covered = last.next_offset - first.base_offset
        size = last.position + last.size - first.position
        largest = max(batch.size for batch in part.batches[-_SIZES_SEEN:])
        self._sizes.learn(cursor.partition, size=size, offsets=covered, batch_bytes=largest)
        assert cursor.leader is not None
        cursor.position, cursor.topic_id = part.next_offset, cursor.leader.topic_id
        cursor.epoch, cursor.end_doubted = last.partition_leader_epoch, None
        self._ready.append(part)
        return [cursor]

    def _again(self, cursors: Iterable[Cursor], error: KafkaEosError, react: Reaction) -> None:
        """Request these again after a pause."""
        for cursor in cursors:
            self._waiting[cursor.partition] = cursor
            self._troubled[cursor.partition] = cursor
            if react is Reaction.REFRESH_METADATA:
                cursor.leader, cursor.is_outdated = None, True
        self._trouble = self._trouble or (error, react)

    def _doubt(self, cursor: Cursor, loss: DataLoss, doubted: Budget) -> None:
        """Raise the loss if the time to doubt it is over."""
        if doubted.spent:
            raise loss
        self._again([cursor], loss, Reaction.REFRESH_METADATA)

    def _is_settled(self) -> bool:
        """Nothing is being retried or doubted."""
        now = self._clock()
        return self._trouble is None and not any(
            cursor.is_out_of_range or cursor.held_until > now for cursor in self._waiting.values()
        )


def _part(cursor: Cursor, max_bytes: int) -> FetchPartition:
    assert cursor.leader is not None, "asked for only once it is located"
    return FetchPartition(
        partition=cursor.partition,
        topic_id=cursor.leader.topic_id,
        position=cursor.position,
        end=cursor.end,
        leader_epoch=cursor.leader.leader_epoch,
        last_epoch=cursor.epoch,
        max_bytes=max_bytes,
    )


def _of_another_log(cursor: Cursor, part: Fetched) -> RecordBatchHeader | None:
    """The first record batch of `part` that is not of the log for which the range was planned."""
    planned, leader = cursor.planned_epoch, cursor.leader
    assert leader is not None
    if planned < 0 or leader.leader_epoch <= planned or cursor.end == NO_END:
        return None
    if part.batches[-1].partition_leader_epoch <= planned:
        return None
    first = next(batch for batch in part.batches if batch.partition_leader_epoch > planned)
    # Epochs beyond the leader's own are none: a service may leave in place what producers have written there.
    is_other = first.base_offset < cursor.end and first.partition_leader_epoch <= leader.leader_epoch
    return first if is_other else None


def _node(cursor: Cursor, leader: PartitionLeader, now: float) -> int:
    """The broker to ask: the preferred follower, else the leader."""
    if cursor.replica is not None and now >= cursor.replica_until:
        cursor.replica = None
    return leader.node if cursor.replica is None else cursor.replica


def _is_served(parts: Mapping[TopicPartition, PartitionResult]) -> bool:
    """Whether the broker has answered for some partition without an error, perhaps that there is nothing."""
    return any(isinstance(outcome, Fetched) for outcome in parts.values())


def _had_no_room(cursor: Cursor, outcome: PartitionResult, was_full: bool) -> bool:
    """Whether the broker has records for the cursor, but its answer was full, or had room for a part of the next record
    batch only. Of the first partition that has any, there is always a whole one (KIP-74).
    """
    if not isinstance(outcome, Fetched) or outcome.last_stable_offset <= cursor.position:
        return False
    return was_full or outcome.lacking > 0


def _peek(asked: Iterable[Cursor], parts: Mapping[TopicPartition, PartitionResult]) -> None:
    """Let the next request peek for the partitions that are stable up to their end."""
    for cursor in asked:
        outcome = parts.get(cursor.partition)
        cursor.is_peek = isinstance(outcome, Fetched) and outcome.last_stable_offset >= cursor.end
