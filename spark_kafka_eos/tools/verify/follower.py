"""Independent readers of an output topic: librdkafka's consumers, read_committed; they share no code with this package.

A `Follower` reads continuously, while transactions run and brokers fail, and remembers what it read.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition

from spark_kafka_eos.errors import BrokerUnreachable, ToolFailed
from spark_kafka_eos.kafka.auth.oauth import librdkafka_callback
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options import ClientOptions
from spark_kafka_eos.tools.verify.evidence import Seen

_BATCH, _POLL_SECONDS = 10_000, 0.05
_STALLED_SECONDS = 15.0
# Errors that are final; librdkafka retries all others (such as an unavailable broker) itself.
_FINAL = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


class Follower:
    """Reads `topic` from its start in a separate thread, from `start()` until `stop()`, like any consumer.

    librdkafka handles lost connections. A consumer that reads nothing for 15 s is replaced by one that goes on where it
    was: after a broker's restart, librdkafka 2.16 may stop fetching, without an error. Use an object for one run only.
    """

    def __init__(self, client: ClientOptions, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self._reader = _Consumer(client, dict.fromkeys(self._partitions, 0))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follower of {topic}", daemon=True)
        self._error: KafkaException | ToolFailed | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def records(self) -> int:
        """The number of records read so far."""
        return self._reader.records

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self, until: Mapping[TopicPartition, int], timeout: float = 30.0) -> dict[TopicPartition, Seen]:
        """What was read up to the last stable offsets `until`, or until there was nothing new for `timeout` s.

        If a reader cannot reach them, the check finds missing records. Other topics' offsets are left out. Raises
        ToolFailed if the reader failed, or has read other partitions of its topic.
        """
        until = {tp: end for tp, end in until.items() if tp.topic == self._topic}
        if until.keys() != set(self._partitions):
            raise ToolFailed(
                f"a follower reads {len(self._partitions)} partitions of topic {self._topic!r}, of which {len(until)} "
                "are checked",
                action="Follow topics that are checked, with the number of their partitions.",
            )
        while self._thread.is_alive() and not self._reader.reached(until) and self._reader.idle < timeout:
            self._thread.join(_POLL_SECONDS)
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise ToolFailed(f"a follower failed: {self._error}") from self._error
        return self._reader.seen(until)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._reader.read()
                if self._reader.stalled > _STALLED_SECONDS:
                    self._reader.reconnect()
        except (KafkaException, ToolFailed) as error:
            self._error = error
        finally:
            self._reader.close()


def witness(client: ClientOptions, ranges: Sequence[OffsetRange], timeout: float = 30.0) -> dict[TopicPartition, Seen]:
    """What librdkafka reads of `ranges`, which end at the last stable offset. Raises BrokerUnreachable without
    progress.
    """
    until = {offset_range.partition: offset_range.end for offset_range in ranges}
    reader = _Consumer(client, {offset_range.partition: offset_range.start for offset_range in ranges})
    try:
        while not reader.reached(until):
            if reader.idle > timeout:
                raise BrokerUnreachable(f"librdkafka has read nothing for {timeout:g} s, and has not reached the end")
            reader.read()
        return reader.seen(until)
    finally:
        reader.close()


class _Consumer:
    """A consumer and what it read."""

    def __init__(self, client: ClientOptions, start: Mapping[TopicPartition, int]) -> None:
        self._start = dict(start)
        self._offsets = {tp: array("q") for tp in start}  # 8 bytes per offset, because a soak test reads for days
        self._position = dict(start)
        self._heard = self._connected = time.monotonic()
        config = client.librdkafka() | librdkafka_callback(client.security)
        config |= {
            "log_level": 2,  # relevant errors are raised, or visible in what was read
            "group.id": "nobody",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # so that a follower has little lag, and a witness reaches the end soon
            "fetch.queue.backoff.ms": 1,
        }
        self._config = config
        self._consumer = self._connect()

    def _connect(self) -> Consumer:
        try:
            consumer = Consumer(self._config)
        except KafkaException as error:  # for example, its wheels have no Kerberos
            raise ToolFailed(f"librdkafka cannot be used with these options: {error.args[0].str()}") from None
        consumer.assign([RdTopicPartition(tp.topic, tp.partition, at) for tp, at in self._position.items()])
        return consumer

    def reconnect(self) -> None:
        """Go on with a new consumer."""
        stalled, self._consumer = self._consumer, self._connect()
        stalled.close()
        self._connected = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since something new was read."""
        return time.monotonic() - self._heard

    @property
    def stalled(self) -> float:
        """Seconds since something new was read by this consumer, or since it was connected."""
        return time.monotonic() - max(self._heard, self._connected)

    @property
    def records(self) -> int:
        """The number of records read so far."""
        return sum(len(offsets) for offsets in self._offsets.values())

    def read(self) -> None:
        """Read what is available, for a moment."""
        for message in self._consumer.consume(_BATCH, _POLL_SECONDS):
            tp = TopicPartition(str(message.topic()), int(message.partition() or 0))
            offset, error = int(message.offset() or 0), message.error()
            if error is None:
                self._offsets[tp].append(offset)
                self._moved(tp, offset + 1)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self._moved(tp, offset)  # after the markers, which are not messages
            elif error.fatal() or error.code() in _FINAL:
                raise KafkaException(error)

    def _moved(self, tp: TopicPartition, position: int) -> None:
        if position > self._position[tp]:
            self._position[tp] = position
            self._heard = time.monotonic()

    def reached(self, until: Mapping[TopicPartition, int]) -> bool:
        return all(self._position[tp] >= end for tp, end in until.items())

    def seen(self, until: Mapping[TopicPartition, int]) -> dict[TopicPartition, Seen]:
        return {
            tp: Seen(start=self._start[tp], end=max(until[tp], self._position[tp]), offset=np.array(offsets, np.int64))
            for tp, offsets in self._offsets.items()
        }

    def close(self) -> None:
        self._consumer.close()
