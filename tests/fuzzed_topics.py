"""Topics with random contents, each from its seed: what Kafka's producers, brokers and operators do to a log.

Topics are filled together, in rounds, by the same few producers of librdkafka, so that fifty of them take seconds. What
is done to a topic depends on its seed alone, so one that failed can be filled again without the others. Which offsets
its records get depends on the brokers, too.

Every record's place comes from its delivery report and its fate from what its producer did, so what a reader should see
is known without any reader.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, Self

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from spark_kafka_eos.kafka.partitions import IsolationLevel as Level
from tests.reading import Row

# Brokers that compact, and delete what retention lets go, while topics are filled.
EAGER_BROKERS = {
    "log.cleaner.backoff.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.retention.check.interval.ms": 200,
    "broker.session.timeout.ms": 60_000,  # however busy the machine is, nobody loses a leader
}
_CODECS: Sequence[dict[str, Any]] = (
    {"compression.type": "none"},
    {"compression.type": "gzip", "compression.level": 1},
    {"compression.type": "gzip", "compression.level": 9},
    {"compression.type": "snappy"},
    {"compression.type": "lz4", "compression.level": 0},
    {"compression.type": "lz4", "compression.level": 12},
    {"compression.type": "zstd", "compression.level": 1},
    {"compression.type": "zstd", "compression.level": 12},
)
_PLAIN: Sequence[dict[str, Any]] = (
    {"enable.idempotence": False, "acks": 1},
    {"enable.idempotence": False, "batch.num.messages": 3},
    {"enable.idempotence": True, "batch.num.messages": 1},
    {"enable.idempotence": True},
)
# How the transaction of each transactional producer ends, by round: committed, aborted, or (-) it goes on. One that is
# open after the last round is committed later if its producer's number is even.
_ENDS = ("cccccc", "aaaaaa", "cacaca", "-c-a-c", "--a--c", "aac---", "------", "ca----")
ROUNDS = len(_ENDS[0])
_LONG_AGO = 1_700_000_000_000
# What a broker says of a partition that was just added, and of which it knows less than the controller.
_NOT_LEADING_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH)
_LEVELS = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}

Kind = Literal["kept", "cut", "compacted", "retained", "markers"]


@dataclass(slots=True)
class Life:
    """What happens to one topic. `written` and `committed` are its records so far, also those that were deleted since;
    `pending` those of open transactions, by producer.

    `kind`: records are kept; cut from the beginning by request; compacted; deleted by retention; or all of them are
    deleted, except markers of transactions.
    """

    seed: int
    topic: str
    kind: Kind
    partitions: int
    added: int  # partitions, in the middle
    config: dict[str, str]
    written: list[Row] = field(default_factory=list)
    committed: list[Row] = field(default_factory=list)
    pending: dict[int, list[Row]] = field(default_factory=dict)
    now_partitions: int = 0

    @property
    def loses(self) -> bool:
        """Whether records disappear before a reader may have read them."""
        return self.kind != "kept"

    @property
    def appends_time(self) -> bool:
        return self.config.get("message.timestamp.type") == "LogAppendTime"

    def tps(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(self.now_partitions)]

    def first_open(self, number: int, high: int) -> int:
        """The first offset of a transaction that is open in a partition; where it ends, if there is none."""
        opened = (row[2] for rows in self.pending.values() for row in rows if row[1] == number)
        return min(opened, default=high)

    @classmethod
    def of(cls, seed: int, prefix: str) -> Life:
        chance = _chance(seed, "life")
        kinds: Sequence[Kind] = ("kept", "cut", "compacted", "retained", "markers")
        kind = chance.choices(kinds, [8, 3, 3, 2, 1])[0]
        config = {"retention.ms": "-1", "index.interval.bytes": str(chance.choice([1, 100, 4_096]))}
        if kind != "retained" and chance.random() < 0.3:
            config["message.timestamp.type"] = "LogAppendTime"
        if chance.random() < 0.2:
            config["compression.type"] = chance.choice(["gzip", "snappy", "lz4", "zstd", "uncompressed"])
        if kind == "compacted":
            deletes = chance.random() < 0.5
            config |= {
                "cleanup.policy": "compact,delete" if chance.random() < 0.2 else "compact",
                "min.cleanable.dirty.ratio": "0.001",
                "segment.ms": "50",
                "delete.retention.ms": "0" if deletes else "86400000",
            }
        if kind == "retained":
            config |= {"retention.ms": "86400000", "segment.ms": "50"}
        return cls(
            seed=seed,
            topic=f"{prefix}-{seed}",
            kind=kind,
            partitions=chance.choice([1, 1, 2, 3]),
            added=chance.choice([0, 0, 0, 2]),
            config=config,
        )


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where partitions begin and end, by number, as the brokers say. If the records of an open transaction are deleted,
    the last stable offset is before the first one.
    """

    first: dict[int, int]
    stable: dict[int, int]
    high: dict[int, int]

    def latest(self, isolation_level: Level) -> dict[int, int]:
        """Where reading ends, which is never before the first offset."""
        end = self.stable if isolation_level == "read_committed" else self.high
        return {number: max(at, self.first[number]) for number, at in end.items()}


class Lives:
    """The topics of `seeds` on one broker. A context manager: it creates them, and deletes them in the end.

    Iterate over `rounds` and read along; then all is in the logs, some transactions are still open, and nothing changes
    until `settle` ends these.
    """

    def __init__(self, bootstrap: str, seeds: Iterable[int], *, prefix: str) -> None:
        self.bootstrap = bootstrap
        self.lives = [Life.of(seed, prefix) for seed in seeds]
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        common = {"bootstrap.servers": bootstrap, "linger.ms": 2, "log_level": 2}
        chance = random.Random(1)
        self._plain = [Producer(common | how | chance.choice(_CODECS)) for how in _PLAIN]
        self._transactional = [
            Producer(
                common
                | {"transactional.id": f"{prefix}-{number}", "transaction.timeout.ms": 600_000}
                | {"batch.num.messages": (1, 2, 10_000)[number % 3]}
                | _CODECS[number]
            )
            for number in range(len(_ENDS))
        ]

    def __enter__(self) -> Self:
        topics = [NewTopic(life.topic, life.partitions, 1, config=life.config) for life in self.lives]
        for created in self._admin.create_topics(topics, operation_timeout=60).values():
            created.result(60)
        for life in self.lives:
            life.now_partitions = life.partitions
        for producer in self._transactional:
            producer.init_transactions(60)
        return self

    def __exit__(self, *error: object) -> None:
        for deleted in self._admin.delete_topics([life.topic for life in self.lives]).values():
            deleted.result(60)

    def rounds(self) -> Iterator[int]:
        """Round after round: all that was sent is in the logs when its number is yielded."""
        for number in range(ROUNDS):
            for index, producer in enumerate(self._plain):
                self._send(producer, number, f"plain-{index}", None)
            for index, producer in enumerate(self._transactional):
                if number == 0 or _ENDS[index][number - 1] != "-":
                    producer.begin_transaction()
                self._send(producer, number, f"transactional-{index}", index)
            for index in _chance(number, "ends").sample(range(len(_ENDS)), len(_ENDS)):
                if _ENDS[index][number] != "-":
                    self._end(index, commit=_ENDS[index][number] == "c")
            if number == ROUNDS // 2:
                self._add_partitions()
            if number in (ROUNDS // 2, ROUNDS - 1):
                self._delete(number)
            yield number
        self._keep()
        self.await_markers()

    def settle(self) -> None:
        """End the open transactions."""
        for index, ends in enumerate(_ENDS):
            if ends.endswith("-"):
                self._end(index, commit=index % 2 == 0)
        self.await_markers()

    def bounds(self, lives: Iterable[Life]) -> dict[str, Bounds]:
        """The bounds of each of these topics."""
        tps = [tp for life in lives for tp in life.tps()]
        first = self._offsets(tps, OffsetSpec.earliest(), "read_uncommitted")
        stable = self._offsets(tps, OffsetSpec.latest(), "read_committed")
        high = self._offsets(tps, OffsetSpec.latest(), "read_uncommitted")
        return {topic: Bounds(first[topic], stable[topic], high[topic]) for topic in first}

    def at_time(self, life: Life, time: int, isolation_level: Level) -> dict[int, int]:
        """The offset of each partition's first record at or after `time` (ms), -1 for none."""
        return self._offsets(life.tps(), OffsetSpec.for_timestamp(time), isolation_level)[life.topic]

    def await_markers(self) -> None:
        """Markers are written after a producer was told that its transaction has ended."""
        deadline = time.monotonic() + 60
        while True:
            found = self.bounds(self.lives)
            waiting = [
                f"{life.topic}-{number} is stable up to {at} of {bounds.high[number]}"
                for life in self.lives
                for bounds in [found[life.topic]]
                for number, at in bounds.stable.items()
                if at < life.first_open(number, bounds.high[number])
            ]
            if not waiting:
                return
            assert time.monotonic() < deadline, waiting
            time.sleep(0.02)  # there is no event for a marker

    # -- what happens

    def _send(self, producer: Producer, number: int, name: str, index: int | None) -> None:
        """A producer's records of a round, for each topic."""
        for life in self.lives:
            chance = _chance(life.seed, name, number)
            if chance.random() < 0.75:
                continue
            for _ in range(chance.choice([1, 1, 3, 10, 40])):
                self._produce(producer, life, index, chance, number)
        assert producer.flush(120) == 0

    def _produce(self, producer: Producer, life: Life, index: int | None, chance: random.Random, number: int) -> None:
        headers = _headers(chance)
        producer.produce(
            life.topic,
            _bytes(chance, 600_000 if chance.random() < 0.003 else chance.choice([2, 40, 3_000])),
            _key(chance) if life.kind == "compacted" else _bytes(chance, 20),
            chance.randrange(life.now_partitions),
            on_delivery=partial(self._delivered, life, index, headers),  # a report brings all but the headers
            timestamp=_timestamp(chance, life, number),
            headers=[*headers],
        )

    @staticmethod
    def _delivered(
        life: Life, index: int | None, headers: list[tuple[str, bytes | None]], error: object, message: Any
    ) -> None:
        assert error is None, f"{life.topic}: {error}"
        place = (life.topic, message.partition(), message.offset(), message.timestamp()[1])
        row: Row = (*place, message.key(), message.value(), tuple(headers) if headers else None)
        life.written.append(row)
        (life.committed if index is None else life.pending.setdefault(index, [])).append(row)

    def _end(self, index: int, *, commit: bool) -> None:
        producer = self._transactional[index]
        if commit:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
        for life in self.lives:
            rows = life.pending.pop(index, [])
            life.committed += rows if commit else []

    def _add_partitions(self) -> None:
        growing = [life for life in self.lives if life.added]
        if not growing:
            return
        wanted = [NewPartitions(life.topic, life.partitions + life.added) for life in growing]
        for added in self._admin.create_partitions(wanted, operation_timeout=60).values():
            added.result(60)
        for life in growing:
            life.now_partitions = life.partitions + life.added
            for producer in (*self._plain, *self._transactional):
                _await_partitions(producer, life)

    def _delete(self, number: int) -> None:
        """Delete records from the beginning of some topics; of those with markers only, all but the last offset, which
        is a marker's if the last producer was a transactional one.
        """
        cut = [life for life in self.lives if life.kind == "cut" or (life.kind == "markers" and number == ROUNDS - 1)]
        if not cut:
            return
        self.await_markers()
        found = self.bounds(cut)
        before = []
        for life in cut:
            chance = _chance(life.seed, "delete", number)
            for tp in life.tps():
                first, high = found[life.topic].first[tp.partition], found[life.topic].high[tp.partition]
                share = chance.choice([0, 0.5, 1, chance.random()])
                at = max(first, high - 1) if life.kind == "markers" else first + int(share * (high - first))
                before.append(TopicPartition(life.topic, tp.partition, at))
        for deleted in self._admin.delete_records(before, operation_timeout=60).values():
            deleted.result(60)

    def _keep(self) -> None:
        """From now on, nothing is compacted or deleted."""
        changed = [life for life in self.lives if life.kind in ("compacted", "retained")]
        if not changed:
            return
        kept = {"cleanup.policy": "delete", "retention.ms": "-1"}
        entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in kept.items()]
        resources = [
            ConfigResource(ConfigResource.Type.TOPIC, life.topic, incremental_configs=entries) for life in changed
        ]
        for altered in self._admin.incremental_alter_configs(resources).values():
            altered.result(60)

    def _offsets(self, tps: Sequence[TopicPartition], spec: Any, level: Level) -> dict[str, dict[int, int]]:
        """By topic and partition. A partition that was just added may be known before the broker leads it."""
        found: dict[str, dict[int, int]] = {}
        left, deadline = [*tps], time.monotonic() + 60
        while left:
            asked = dict.fromkeys(left, spec)
            answers = self._admin.list_offsets(asked, isolation_level=_LEVELS[level], request_timeout=60)
            left = []
            for tp, answer in answers.items():
                try:
                    found.setdefault(tp.topic, {})[tp.partition] = answer.result(60).offset
                except KafkaException as error:
                    if error.args[0].code() not in _NOT_LEADING_YET or time.monotonic() > deadline:
                        raise
                    left.append(tp)
        return found


@contextmanager
def named(life: Life) -> Iterator[None]:
    """An error inside says which topic it was, and how to fill it again."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"KAFKA_EOS_SEEDS={life.seed}: {life.topic}, {life.kind}, {life.config}")
        raise


def _await_partitions(producer: Producer, life: Life) -> None:
    """Until the producer knows all of them: looking makes it look up the topic again."""
    deadline = time.monotonic() + 60
    while len(producer.list_topics(life.topic, 60).topics[life.topic].partitions) < life.now_partitions:
        assert time.monotonic() < deadline, f"{life.topic} does not grow"


def _chance(seed: int, *of: object) -> random.Random:
    """Always the same for a seed and a purpose, whatever else is drawn."""
    return random.Random("-".join(map(str, (seed, *of))))


def _timestamp(chance: random.Random, life: Life, number: int) -> int:
    """In ms; 0 for now. In order, out of order, or, where retention is to delete the older half, in two halves."""
    if life.kind == "retained":
        return 0 if number >= ROUNDS // 2 else _LONG_AGO + chance.randrange(10**6)
    return chance.choice([0, 1, _LONG_AGO + number * 10**6, _LONG_AGO + chance.randrange(10**9)])


def _headers(chance: random.Random) -> list[tuple[str, bytes | None]]:
    """Some with the same name, without a value, or without a name."""
    return [(chance.choice(["a", "a", "b", ""]), _bytes(chance, 10)) for _ in range(chance.choice([0, 0, 0, 1, 3]))]


def _key(chance: random.Random) -> bytes:
    return chance.choice([b"", b"a", b"b", b"%d" % chance.randrange(30)])


def _bytes(chance: random.Random, most: int) -> bytes | None:
    """None, nothing, noise, or what compresses well."""
    size = chance.randrange(most)
    return chance.choice([None, b"", chance.randbytes(size), b"%d " % size * (size // 5)])
