"""Options that are refused, of batch reads (KafkaRelationSuite) and of streams (KafkaMicroBatchSourceSuite)."""

from __future__ import annotations

from tests.spark.peer.case import Documented, Refusal, case
from tests.spark.peer.connector import Connector, numbers

BATCH, STREAM = "KafkaRelationSuite", "KafkaMicroBatchSourceSuite"
# The built-in source checks the options in another order than their values; no broker is asked.
NO_BROKER = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def refused(
    sentence: str, kind: str, theirs: str, ours: str, given: dict[str, str], *options: str, in_every_run: bool = False
) -> None:
    """Adds the case of a batch read or a stream that is refused with `given`, without a broker."""

    def run(connector: Connector) -> object:
        if kind == BATCH:
            return connector.spark.read.format(connector.form).options(**NO_BROKER | given).load().collect()
        frame = connector.spark.readStream.format(connector.form).options(**NO_BROKER | given).load()
        return connector.query(frame).start().all()

    case(kind, Refusal(theirs), *options, here=Refusal(ours), sentence=sentence, in_every_run=in_every_run)(run)


T = {"subscribe": "t"}
for kind, name in ((BATCH, "a_batch_read"), (STREAM, "a_stream")):
    refused(
        f"{name}_that_says_nothing_to_read_is_refused",
        kind,
        "One of the following options must be specified.*subscribe",
        "the topics to read are not set",
        {},
        "subscribe",
        "subscribePattern",
        "assign",
        in_every_run=kind == STREAM,
    )
    refused(
        f"{name}_of_topics_and_of_a_pattern_is_refused",
        kind,
        "Only one of",
        "subscribe and subscribePattern cannot be combined",
        T | {"subscribePattern": "t.*"},
        "subscribe",
        "subscribePattern",
    )
    refused(
        f"{name}_of_topics_and_of_partitions_is_refused",
        kind,
        "Only one of",
        "subscribe and assign cannot be combined",
        T | {"assign": '{"a": [0]}'},
        "subscribe",
        "assign",
    )
    refused(
        f"{name}_of_no_partitions_is_refused",
        kind,
        "No topicpartitions to assign",
        "option 'assign': '' is not valid JSON",
        {"assign": ""},
        "assign",
    )
    refused(
        f"{name}_of_no_topics_is_refused",
        kind,
        "No topics to subscribe",
        "option 'subscribe': must not be empty",
        {"subscribe": ""},
        "subscribe",
    )
    refused(
        f"{name}_of_an_empty_pattern_is_refused",
        kind,
        "Pattern to subscribe is empty",
        "option 'subscribePattern': must not be empty",
        {"subscribePattern": ""},
        "subscribePattern",
    )

refused(
    "a_batch_read_that_starts_at_the_latest_offset_is_refused",
    BATCH,
    "Starting offset can't be latest",
    "cannot start at the latest offset",
    T | {"startingOffsets": "latest"},
    "startingOffsets",
)
refused(
    "a_batch_read_that_starts_at_the_latest_offset_of_a_partition_is_refused",
    BATCH,
    "startingOffsets for t-0 can't be latest",
    "cannot start at the latest offset",
    T | {"startingOffsets": '{"t": {"0": -1}}'},
    "startingOffsets",
    in_every_run=True,
)
refused(
    "a_batch_read_that_ends_at_the_earliest_offset_is_refused",
    BATCH,
    "Ending offset can't be earliest",
    "option 'endingOffsets': 'earliest' is not",
    T | {"endingOffsets": "earliest"},
    "endingOffsets",
)
refused(
    "a_batch_read_that_ends_at_the_earliest_offset_of_a_partition_is_refused",
    BATCH,
    "ending offset for t-0 can't be earliest",
    "option 'endingOffsets': -2 .*is not",
    T | {"endingOffsets": '{"t": {"0": -2}}'},
    "endingOffsets",
)
refused(
    "a_stream_that_ends_at_the_latest_offset_is_refused",
    STREAM,
    "Ending offset not valid in streaming queries",
    "option 'endingOffsets': the latest offset",
    T | {"endingOffsets": "latest"},
    "endingOffsets",
)
refused(
    "a_minimum_of_offsets_above_their_maximum_is_refused",
    STREAM,
    "minOffsetPerTrigger.20. is higher than the maxOffsetsPerTrigger.15.",
    "20 is greater than maxOffsetsPerTrigger, 15",
    T | {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
    "minOffsetsPerTrigger",
    "maxOffsetsPerTrigger",
)

UNSUPPORTED = {
    "kafka.auto.offset.reset": ("someValue", "none", "earliest", "latest"),
    "kafka.enable.auto.commit": ("someValue",),
    "kafka.interceptor.classes": ("someValue",),
    "kafka.key.deserializer": ("someValue",),
    "kafka.value.deserializer": ("someValue",),
}
for option, contents in UNSUPPORTED.items():
    for content in contents:
        refused(
            f"{option}={content}_is_refused",
            STREAM,
            "not supported",
            f"option '{option}': ",
            T | {option: content},
            option,
        )


@case(
    STREAM,
    Refusal("Ending timestamp not valid in streaming queries"),
    "endingOffsetsByTimestamp",
    here=[0],
    documented=Documented("Options", "Also for a stream. A partition that is added to it"),
)
def a_stream_that_ends_at_a_time_is_refused(connector: Connector) -> object:
    topic = connector.topic([])
    connector.send(topic, [b"0"], timestamp=1_000)
    connector.send(topic, [b"1"], timestamp=2_000)
    frame = connector.stream(topic, endingOffsetsByTimestamp=f'{{"{topic}": {{"0": 2000}}}}')
    return connector.query(frame).run()[0]


for content in ("a", "1.0", "0", "-1"):

    @case(
        STREAM,
        Refusal("minPartitions|NumberFormatException|For input string"),
        "minPartitions",
        here=Refusal("option 'minPartitions': "),
        sentence=f"min_partitions_of_{content}_are_refused",
    )
    def min_partitions_that_are_no_number(connector: Connector, content: str = content) -> object:
        return numbers(connector.read(connector.topic([b"0"]), minPartitions=content))
