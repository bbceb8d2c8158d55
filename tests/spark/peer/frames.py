"""A frame that is used several times: in KafkaRelationSuite, each action looks at what is there when it begins."""

from __future__ import annotations

from tests.producing import delete_records, transact
from tests.reading import await_stable
from tests.spark.peer.batch_reads import SUITE, everywhere, three_partitions
from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector, numbers, values

KEPT = Documented("A batch DataFrame keeps its offsets", "read the offsets of the first one")


@case(SUITE, [[*range(21)], [*range(30)]], "endingOffsets", here=[[*range(21)]] * 2, documented=KEPT)
def a_frame_has_what_came_since_its_last_action(connector: Connector) -> object:
    topic = three_partitions(connector)
    frame = connector.read(topic, startingOffsets="earliest", endingOffsets="latest")
    first = numbers(frame)
    connector.send(topic, values(21, 30), partition=2)
    return [first, numbers(frame)]


@case(
    SUITE,
    [[*range(21)], [*range(21)], [*range(31)]],
    "startingOffsets",
    "endingOffsets",
    here=[[*range(21)]] * 3,
    documented=KEPT,
)
def a_frame_has_more_only_where_its_end_is_the_latest(connector: Connector) -> object:
    topic = three_partitions(connector)
    given = {"startingOffsets": everywhere(topic, -2, -2, 0), "endingOffsets": everywhere(topic, -1, -1, 1)}
    frame = connector.read(topic, **given)
    seen = [numbers(frame)]
    connector.send(topic, values(31, 40), partition=2)
    seen.append(numbers(frame))
    connector.send(topic, values(21, 31), partition=1)
    return [*seen, numbers(frame)]


@case(
    SUITE,
    [[*range(10)], [*range(10, 20)]],
    "startingOffsets",
    here=Refusal("errors.DataLoss: .*at the first action on this DataFrame"),
    documented=KEPT,
)
def a_frame_starts_at_the_earliest_offset_of_each_action(connector: Connector) -> object:
    topic = connector.topic(values(10))
    frame = connector.read(topic, startingOffsets="earliest", endingOffsets="latest")
    first = numbers(frame)
    connector.send(topic, values(10, 20))
    delete_records(connector.kafka.bootstrap, topic, 10)
    return [first, numbers(frame)]


@case(SUITE, [[1, 2], [1, 2, 3]], "kafka.isolation.level", here=[[1, 2]] * 2, documented=KEPT)
def a_frame_has_what_was_committed_since_its_last_action(connector: Connector) -> object:
    topic = connector.topic([])
    frame = connector.read(topic, **{"kafka.isolation.level": "read_committed"})
    transact(connector.kafka.bootstrap, topic, values(1, 3), "commit")
    first = numbers(frame)
    transact(connector.kafka.bootstrap, topic, [b"3"], "commit")
    await_stable(connector.kafka.bootstrap, topic)
    return [first, numbers(frame)]


@case(SUITE, [3, 10], "subscribe", here=[3, 3], documented=KEPT)
def a_view_has_what_came_since_it_was_asked_last(connector: Connector) -> object:
    topic = connector.topic(values(3))
    view = connector.name("view").replace("-", "_")
    connector.read(topic).createTempView(view)

    def count() -> object:
        return connector.spark.sql(f"SELECT count(*) FROM {view}").collect()[0][0]

    first = count()
    connector.send(topic, values(3, 10))
    return [first, count()]


@case(SUITE, [[*range(21)], [*range(31)]], "minPartitions", here=[[*range(21)]] * 2, documented=KEPT)
def the_tasks_of_a_frame_have_what_came_since_its_last_action(connector: Connector) -> object:
    topic = three_partitions(connector)
    frame = connector.read(topic, minPartitions="6")
    first = sorted(int(row.value) for row in frame.rdd.collect())
    connector.send(topic, values(21, 31))
    return [first, sorted(int(row.value) for row in frame.rdd.collect())]
