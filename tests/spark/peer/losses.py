"""Topics and records that are gone, and partitions that come: KafkaDontFailOnDataLossSuite, ConsumerStrategySuite, and
what KafkaMicroBatchSourceSuite demands of deleted topics.
"""

from __future__ import annotations

import json

from tests.producing import delete_records
from tests.spark.peer.batch_reads import everywhere
from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector, numbers, values

LOSS, STRATEGY, STREAM = "KafkaDontFailOnDataLossSuite", "ConsumerStrategySuite", "KafkaMicroBatchSourceSuite"


def aged_out(connector: Connector) -> str:
    """A topic of 50 records, of which the first 30 are deleted."""
    topic = connector.topic(values(50))
    delete_records(connector.kafka.bootstrap, topic, 30)
    return topic


@case(LOSS, [*range(30, 50)], "failOnDataLoss", in_every_run=True)
def a_batch_read_of_deleted_records_may_go_on_without_them(connector: Connector) -> object:
    topic = aged_out(connector)
    return numbers(connector.read(topic, startingOffsets=everywhere(topic, 0), failOnDataLoss="false"))


@case(LOSS, [*range(30, 50)], "failOnDataLoss")
def a_stream_of_deleted_records_may_go_on_without_them(connector: Connector) -> object:
    topic = aged_out(connector)
    frame = connector.stream(topic, startingOffsets=everywhere(topic, 0), failOnDataLoss="false")
    return connector.query(frame).start().all()


@case(LOSS, Refusal("Some data may have been lost"), "failOnDataLoss", here=Refusal("errors.DataLoss: offsets"))
def a_batch_read_of_deleted_records_fails(connector: Connector) -> object:
    topic = aged_out(connector)
    return numbers(connector.read(topic, startingOffsets=everywhere(topic, 0)))


@case(LOSS, Refusal("Some data may have been lost"), "failOnDataLoss", here=Refusal("errors.DataLoss: offsets"))
def a_stream_of_deleted_records_fails(connector: Connector) -> object:
    topic = aged_out(connector)
    return connector.query(connector.stream(topic, startingOffsets=everywhere(topic, 0))).start().all()


@case(STREAM, [2, 3, 4, 5, 6, 7], "subscribePattern", "failOnDataLoss")
def a_topic_of_a_pattern_may_be_deleted_and_another_one_come(connector: Connector) -> object:
    prefix = connector.name()
    topic = connector.topic([b"-1"], [], name=f"{prefix}-seems")
    frame = connector.stream(
        None,
        subscribePattern=f"{prefix}-.*",
        failOnDataLoss="false",
        startingOffsets="latest",
        **{"kafka.request.timeout.ms": "3000", "kafka.default.api.timeout.ms": "3000"},
    )
    query = connector.query(frame).start()
    query.all()
    connector.send(topic, values(2, 5), partition=1)
    query.await_rows(3)
    connector.kafka.delete_topic(topic)
    other = connector.topic([], [], name=f"{prefix}-bad")
    connector.send(other, values(5, 8))
    return query.await_rows(6)


@case(STREAM, False, "subscribePattern", "failOnDataLoss")
def an_end_without_any_partition_is_not_recorded(connector: Connector) -> object:
    prefix = connector.name()
    topic = connector.topic([], [], name=f"{prefix}-good")
    frame = connector.stream(
        None,
        subscribePattern=f"{prefix}-.*",
        failOnDataLoss="false",
        startingOffsets="latest",
        **{"kafka.request.timeout.ms": "3000", "kafka.default.api.timeout.ms": "3000"},
    )
    query = connector.query(frame).start()
    query.all()
    connector.send(topic, values(3))
    query.await_rows(3)
    connector.kafka.delete_topic(topic)
    query.all()
    query.stop()
    ends = [path.read_text().splitlines()[-1] for path in (query.checkpoint / "offsets").glob("[0-9]*")]
    return "{}" in ends


@case(
    STREAM,
    Refusal("was changed from 2 to 1"),
    "subscribePattern",
    "failOnDataLoss",
    here=Refusal("errors.DataLoss: offsets"),
    in_every_run=True,
)
def a_topic_that_was_created_again_with_fewer_records_fails_the_query(connector: Connector) -> object:
    prefix = connector.name()
    connector.topic([b"1", b"3"], name=f"{prefix}-good")
    other = connector.topic([b"2", b"4"], name=f"{prefix}-bad")
    query = connector.query(connector.stream(None, subscribePattern=f"{prefix}-.*"))
    query.run()
    connector.kafka.delete_topic(other)
    connector.topic([b"6"], name=other)
    return query.start().all()


@case(
    STREAM,
    [1, 2, 5],
    "failOnDataLoss",
    here=Refusal("errors.DataLoss: offsets"),
    documented=Documented("Topics that are deleted and created again", "if the new topic is already longer"),
)
def a_topic_that_was_created_again_with_more_records_loses_the_first_ones(connector: Connector) -> object:
    topic = connector.topic(values(1, 3))
    query = connector.query(connector.stream(topic))
    query.run()
    connector.kafka.delete_topic(topic)
    connector.topic(values(3, 6), name=topic)
    query.run()
    return query.so_far()


def replaced(sentence: str, theirs: str, partitions: int, count: int) -> None:
    """Adds the case of a run with availableNow in whose first batch the topic is replaced."""

    @case(
        STREAM,
        Refusal(theirs),
        "failOnDataLoss",
        "subscribe",
        here=Refusal("errors.DataLoss: offsets"),
        sentence=sentence,
    )
    def run(connector: Connector) -> object:
        topic = connector.topic(values(15), [], [], [], [])

        def replace(_batch: int) -> None:
            connector.kafka.delete_topic(topic)
            connector.topic(values(count), *[[]] * (partitions - 1), name=topic)

        frame = connector.stream(topic, maxOffsetsPerTrigger="5", **{"kafka.metadata.max.age.ms": "500"})
        query = connector.query(frame, read=lambda _frame: [0], before=replace)
        return query.run()


replaced(
    "available_now_fails_when_partitions_are_lost_between_its_batches",
    "partitions in Kafka topic.s. have been lost",
    3,
    15,
)
replaced(
    "available_now_fails_when_offsets_are_lost_between_its_batches",
    "less than end offset",
    5,
    10,
)


@case(STREAM, True, "failOnDataLoss")
def a_topic_that_is_deleted_while_its_batch_runs_does_not_fail_a_query_that_may_lose_data(
    connector: Connector,
) -> object:
    topic = connector.topic(values(1, 11))
    frame = connector.stream(
        topic,
        failOnDataLoss="false",
        **{
            "kafka.request.timeout.ms": "3000",
            "kafka.default.api.timeout.ms": "3000",
            "kafkaConsumer.pollTimeoutMs": "1000",
        },
    )

    def replace(batch: int) -> None:
        if batch == 0:
            connector.kafka.delete_topic(topic)
            connector.topic([], name=topic)

    query = connector.query(frame, before=replace).start()
    query.all()
    assert query.running is not None
    return query.running.exception() is None


# -- what is read


@case(STRATEGY, [0, 2], "assign")
def assigned_partitions_are_read_and_no_others(connector: Connector) -> object:
    topic = connector.topic([b"0"], [b"1"], [b"2"])
    connector.topic([b"3"], [b"4"])
    return numbers(connector.read(None, assign=json.dumps({topic: [0, 2]})))


@case(STRATEGY, [0, 1, 2, 3], "subscribe")
def subscribed_topics_are_read_with_all_their_partitions(connector: Connector) -> object:
    topics = connector.topic([b"0"], [b"1"]), connector.topic([b"2"], [b"3"])
    connector.topic([b"4"], [b"5"])
    return numbers(connector.read(None, subscribe=",".join(topics)))


@case(STRATEGY, [0, 1, 2, 3], "subscribePattern", in_every_run=True)
def topics_that_a_pattern_matches_are_read_with_all_their_partitions(connector: Connector) -> object:
    prefix = connector.name("pattern")
    connector.topic([b"0"], [b"1"], name=f"{prefix}-a")
    connector.topic([b"2"], [b"3"], name=f"{prefix}-b")
    connector.topic([b"4"], [b"5"], name=connector.name("other"))
    return numbers(connector.read(None, subscribePattern=f"{prefix}.*"))


@case(STREAM, [0, 1, 2], "subscribePattern")
def a_topic_that_comes_later_and_that_the_pattern_matches_is_read_from_its_beginning(connector: Connector) -> object:
    prefix = connector.name()
    connector.topic([b"0"], name=f"{prefix}-a")
    query = connector.query(connector.stream(None, subscribePattern=f"{prefix}-.*", startingOffsets="earliest")).start()
    query.all()
    connector.topic([b"1"], [b"2"], name=f"{prefix}-b")
    return query.await_rows(3)


@case(STRATEGY, [0, 1], "subscribePattern")
def a_pattern_that_occurs_in_a_name_selects_its_topic(connector: Connector) -> object:
    part = connector.name("part")
    connector.topic([b"0"], name=f"before-{part}-after")
    connector.topic([b"1"], name=part)
    connector.topic([b"2"], name=connector.name("other"))
    return numbers(connector.read(None, subscribePattern=part))


@case(
    STRATEGY,
    [0],
    "assign",
    here=Refusal("errors.UnknownTopic: .*-1 is listed in the option assign"),
    documented=Documented("Options", "A partition that does not exist is an error"),
)
def an_assigned_partition_that_does_not_exist_is_left_out(connector: Connector) -> object:
    topic = connector.topic([b"0"])
    return numbers(connector.read(None, assign=json.dumps({topic: [0, 1]})))


@case(STRATEGY, Refusal("UnknownTopicOrPartition"), "subscribe", here=Refusal("errors.UnknownTopic: "))
def a_subscribed_topic_that_does_not_exist_fails_the_read(connector: Connector) -> object:
    timeouts = {"kafka.default.api.timeout.ms": "3000", "kafka.request.timeout.ms": "3000"}
    return numbers(connector.read(connector.name("missing"), **timeouts))


@case(STRATEGY, [], "subscribePattern")
def a_pattern_that_no_topic_has_is_an_empty_read(connector: Connector) -> object:
    return numbers(connector.read(None, subscribePattern=connector.name("missing")))
