"""The model of Kafka with a table of offsets for its logs, and what Spark makes of a source's positions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa

from lab.simulation.partition import Entry, Partition
from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.source_offset import UNRESOLVED, JsonOffsets, SourceOffset
from tests.model_kafka import KafkaModel

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPEN: JsonOffsets = {name: dict(offsets) for name, offsets in UNRESOLVED.items()}


# Ten records of a hundred bytes each, batch and all.
BATCH = bytes(encode(pa.nulls(10, pa.binary()), pa.array([b"v" * 85] * 9 + [b"v" * 84], pa.binary()), 7))


class Log(Partition):
    """From its earliest offset to the last stable one, and perhaps to a high watermark; every record is BATCH's."""

    def __init__(self, earliest, stable, high_watermark=None):
        super().__init__()
        self.start_offset, self.end_offset = earliest, high_watermark or stable
        self._stable = stable
        self._later: list[tuple[int, int]] = []  # epochs and where they begin

    def epoch_begins(self, epoch, offset):
        """The leader of this epoch began to write there."""
        self._later.append((epoch, offset))

    def end_of_epoch(self, epoch):
        return min([offset for later, offset in self._later if later > epoch], default=self.end_offset)

    @property
    def last_stable_offset(self):
        return self._stable

    def entries(self, start, end):
        return [Entry(start, -1, -1, (None,) * 10, None, BATCH)]


class Brokers(KafkaModel):
    """The model of Kafka with a table in the place of logs: `{topic: [(earliest, latest), …]}`. Times are offsets."""

    def __init__(self, **topics):
        super().__init__(nodes=1)
        self.before_times = None  # what happens just before the next look-up by time arrives
        self.has(**topics)

    def has(self, **topics):
        """From now on; a topic keeps its id."""
        for name, ends in topics.items():
            if all(tp.topic != name for tp in self.partitions):
                self.topics.create(name, 0)
            for number, each in enumerate(ends):
                tp = TopicPartition(name, number)
                self.partitions[tp] = Log(*each)
                self.topics.leader.setdefault(tp, 0)
                self.topics.leader_epoch.setdefault(tp, 0)

    def elect(self, tp, *, at=None):
        """A new leader, whose log begins `at` an offset; by default at the end of the last leader's log."""
        self.topics.leader_epoch[tp] += 1
        log = self.partitions[tp]
        assert isinstance(log, Log)
        log.epoch_begins(self.topics.leader_epoch[tp], log.end_offset if at is None else at)

    def create_again(self, name, *ends):
        self.delete(name)
        self.has(**{name: ends})

    def delete(self, name):
        self.topics.delete(name)
        self.seconds += 10.0

    def id_of(self, name):
        return self.cluster().topic(name).id

    @property
    def seconds(self):
        return self.world.now

    @seconds.setter
    def seconds(self, now):
        self.world.now = now

    def handle(self, node, api, version, request):
        if api == "ListOffsets" and request.topics[0].partitions[0].timestamp not in (-1, -2):
            if (happens := self.before_times) is not None:
                self.before_times = None
                happens()
            return self._at_times(node, request)
        return super().handle(node, api, version, request)

    def _at_times(self, node, request):
        def listed(topic, wanted):
            tp = TopicPartition(topic.name, wanted.partition_index)
            if code := self.topics.refusal(node, tp, wanted.current_leader_epoch):
                return SimpleNamespace(partition_index=wanted.partition_index, error_code=code, offset=-1, timestamp=-1)
            log = self.partitions[tp]
            if wanted.timestamp == -3:
                return SimpleNamespace(
                    partition_index=wanted.partition_index, error_code=0, offset=0, timestamp=log.end_offset - 1
                )
            offset = max(wanted.timestamp, log.start_offset) if wanted.timestamp < log.last_stable_offset else -1
            return SimpleNamespace(partition_index=wanted.partition_index, error_code=0, offset=offset)

        return SimpleNamespace(
            topics=[
                SimpleNamespace(name=topic.name, partitions=[listed(topic, wanted) for wanted in topic.partitions])
                for topic in request.topics
            ]
        )

    def sampled(self):
        """The offsets that were fetched, request by request."""
        return [
            [(wanted.partition, wanted.fetch_offset) for wanted in request.topics[0].partitions]
            for request in self.sent("Fetch")
        ]


class Ends(dict):
    """Offsets that equal others with the same ones, whatever else those contain, such as their origin."""

    __hash__ = None

    def __eq__(self, other):
        return other is not None and offsets_from_json(self) == offsets_from_json(other)

    def __ne__(self, other):
        return not self == other


def json_of(**offsets):
    return Ends({topic: {str(number): offset for number, offset in enumerate(ends)} for topic, ends in offsets.items()})


def first_batch(source, *, limited=False):
    """The start and end that Spark records for batch 0, and what its tasks read: `{partition: (start, end)}`."""
    end = recorded(source.latest(source.initial(), limited=limited))
    return SourceOffset.from_json(end).start, offsets_from_json(end), ranges(source.batch(source.initial(), end))


def recorded(offsets):
    """As Spark returns the offsets after it has written them down."""
    return json.loads(json.dumps(offsets))


def ranges(tasks):
    return {one.partition.partition: (one.start, one.end) for task in tasks for one in task}
