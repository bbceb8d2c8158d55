"""A query whose batches are steps of `older_release`, for this release or an older one."""

from __future__ import annotations

import itertools

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.options import sink_options
from tests import older_release
from tests.producing import produce
from tests.reading import read_committed

COMMITTED, SKIPPED = {"outcome": "committed"}, {"outcome": "skipped"}

_numbers = itertools.count(1)


class Query:
    """A query that copies ten offsets of `source` in a batch, run by any release."""

    def __init__(self, kafka, outputs=1, **options):
        self.kafka, number = kafka, next(_numbers)
        self.source = kafka.create_topic(f"stepped-in-{number}")
        produce(kafka.bootstrap, self.source, [b"x"] * 100)
        self.outputs = [kafka.create_topic(f"stepped-out-{number}-{each}") for each in range(outputs)]
        self.name = f"stepped-{number}"
        where = {"topic": self.outputs[0]} if outputs == 1 else {"outputTopics": ",".join(self.outputs)}
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": self.name}
        self.options = given | where | options

    def batch(self, number, query="query", start=None, end=None, **options):
        """The step that writes this batch; without other offsets, those from ten times its number."""
        start = number * 10 if start is None else start
        step = {"step": "batch", "options": self.options | options, "query": query, "batch": number}
        return step | {"source": self.source, "range": [start, start + 10 if end is None else end]}

    def starts(self, **options):
        """The step that tells where a new query starts: without other options, where the group's offsets are."""
        options = options or {"kafka.group.id": self.name}
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.source}
        return {"step": "starts", "options": given | {"startingOffsets": "committed"} | options}

    def written(self):
        """What is in each output, which must be the same."""
        found = [
            sorted(int(message.value() or b"") for message in read_committed(self.kafka.bootstrap, output))
            for output in self.outputs
        ]
        assert all(each == found[0] for each in found)
        return found[0]

    def committed(self):
        """The query's offset as lag tools see it."""
        [(offset, _)] = self.offsets(self.name).values()
        return offset

    def offsets(self, group, *settled):
        """The offset and metadata of each topic that the group has; waits for pending ones of the topics `settled`."""
        return group_offsets(self.kafka.bootstrap, group, *settled)


def new(*steps):
    """The steps' outcomes with this release."""
    return [older_release.outcome_of(step) for step in steps]


def group_offsets(bootstrap, group, *settled):
    """The offset and metadata of each topic that the group has; waits for pending ones of the topics `settled`.

    Of all offsets, brokers leave out one whose first commit is pending. Not with librdkafka, which reads on behind the
    metadata.
    """
    client = sink_options({"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": "nobody"}).client
    with Cluster(client) as cluster:
        coordinator = GroupCoordinator(cluster, group)
        coordinator.fetch_offsets([TopicPartition(topic, 0) for topic in settled])
        found = coordinator.fetch_all()
    return {tp.topic: (at.offset, at.metadata) for tp, at in found.items()}
