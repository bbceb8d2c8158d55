"""What is open in a query's outputs, from a survey, and the lines that say it."""

from __future__ import annotations

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, ProducerState
from spark_kafka_eos.tools.cli.outputs import output_lines, outputs_json
from spark_kafka_eos.tools.operators.outputs import outputs
from spark_kafka_eos.tools.operators.survey import Survey

NOW = 1_800_000_000_000
HELD, FREE, DARK = TopicPartition("copies", 0), TopicPartition("copies", 1), TopicPartition("copies", 2)


def left_open(at, seconds):
    return ProducerState(
        partition=HELD, producer_id=at, epoch=3, start_offset=at, last_timestamp_ms=NOW - seconds * 1_000
    )


SURVEY = Survey(
    taken_ms=NOW,
    producers={HELD: (left_open(70, 5), left_open(40, 804)), FREE: ()},
    log_ends={
        HELD: LogEnds(last_stable_offset=40, high_watermark=97),
        FREE: LogEnds(last_stable_offset=9, high_watermark=9),
    },
    unavailable={DARK: "copies-2 has no leader"},
    complete=True,
)


def test_the_transaction_that_holds_a_partition_is_the_one_that_began_first():
    (found,) = outputs(["copies"], SURVEY)
    assert (found.partitions, found.held_offsets, found.unknown) == (2, 57, ("copies-2 has no leader",))
    assert found.oldest is not None
    assert found.oldest.producer.producer_id == 40


def test_what_nobody_ends_is_shown_with_the_command_that_aborts_it():
    said, command = output_lines(outputs(["copies"], SURVEY), NOW)
    text = (
        "copies: open transactions hold 57 offsets in 1 of 2 partitions; the oldest, in copies-0, is of producer 40, "
        "epoch 3, since 13 min; who ends it: nobody: it hangs; unknown: copies-2 has no leader"
    )
    assert said == ("output", text)
    assert command == ("", "kafka-eos transactions abort --topic copies --partition 0 --start-offset 40")
    (as_json,) = outputs_json(outputs(["copies"], SURVEY))
    assert [each["ending"] for each in as_json["open"]] == ["hanging"]


def test_a_topic_that_is_gone_is_unknown_and_not_free():
    why = "topic copies does not exist"
    assert list(output_lines(outputs(["copies"], Survey(taken_ms=NOW), {"copies": why}), NOW)) == [
        ("output", f"copies: unknown: {why}")
    ]
    (as_json,) = outputs_json(outputs(["copies"], Survey(taken_ms=NOW), {"copies": why}))
    assert as_json["held_offsets"] is None
