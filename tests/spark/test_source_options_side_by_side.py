"""Each option that both sources have, on one topic: the same rows. The end of the run shows rows and checksums."""

from __future__ import annotations

import json

import pytest
from chispa import assert_df_equality
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import functions as F

from tests.built_in import SOURCE_OPTIONS
from tests.producing import KEEP, produce, transact
from tests.reading import await_stable, librdkafkas
from tests.workload import Workload, seeds

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EARLIER, LATER = 1_600_000_000_000, 1_750_000_000_000
BUILT_IN, OURS = "kafka", "kafka-eos"
# The built-in source returns uncommitted records unless told otherwise, and waits for them for half a second.
ALIKE = {"kafka.isolation.level": "read_committed", "kafka.fetch.max.wait.ms": "10", "includeHeaders": "true"}
TABLE = "rows and checksums of both sources, option by option"


@pytest.fixture(scope="module", params=seeds(or_else="20"))
def name(request, kafka, topic):
    """Two partitions of a random transactional workload, one transaction of it still open."""
    name = topic("options", partitions=2, config=KEEP)
    # Markers have the time at which they are written: where a read is to end by time, records must lie before them.
    for partition in range(2):
        produce(kafka.bootstrap, name, [b"%d" % n for n in range(100)], partition=partition, timestamp=EARLIER)
    workload = Workload(kafka.bootstrap, name, 2, request.param)
    assert list(workload.run(steps=40))
    workload.stop()
    transact(kafka.bootstrap, name, [b"aborted"] * 50, "abort", partition=1)
    for partition in range(2):
        produce(kafka.bootstrap, name, [b"%d" % n for n in range(100)], partition=partition, timestamp=LATER)
    still_open = transact(kafka.bootstrap, name, [b"open"] * 5, "leave open", partition=1)
    produce(kafka.bootstrap, name, [b"behind the last stable offset"], partition=1)
    await_stable(kafka.bootstrap, name, behind=[0, 6])
    yield name
    still_open.abort_transaction(30)


@pytest.fixture
def tell(cell):
    """`tell(case, source, rows, checksum)`: into the table at the end of the run."""

    def fill(case, source, rows, checksum):
        cell(TABLE, case, source, f"{rows} rows, {checksum & (1 << 64) - 1:016x}")

    return fill


@pytest.fixture
def options(bootstrap, name):
    """A case's options, `subscribe` unless it says what to read; `$t` is the topic."""

    def of(given):
        given = {option: value.replace("$t", name) for option, value in given.items()}
        what = {} if {"subscribePattern", "assign"} & given.keys() else {"subscribe": name}
        return ALIKE | {"kafka.bootstrap.servers": bootstrap} | what | given

    return of


def summary(frame):
    """Count and checksum of the rows: all columns, in any order."""
    checksum = F.coalesce(F.sum(F.xxhash64(*frame.columns).cast("decimal(38,0)")), F.lit(0))
    [row] = frame.agg(F.count("*").alias("rows"), checksum.alias("checksum")).collect()
    return row.rows, int(row.checksum)


BATCH_READS = {
    "subscribe": {},
    "subscribePattern": {"subscribePattern": r"(?i)\Q$t\E(?<rest>\p{Punct}*+)\z"},
    "assign": {"assign": '{"$t": [1]}'},
    "startingOffsets": {"startingOffsets": '{"$t": {"0": 17, "1": -2}}'},
    "startingTimestamp": {"startingTimestamp": "1740000000000"},
    "startingOffsetsByTimestamp": {"startingOffsetsByTimestamp": '{"$t": {"0": 1700000500000, "1": 1740000000000}}'},
    "startingOffsetsByTimestampStrategy": {
        "startingOffsetsByTimestamp": '{"$t": {"0": 1700000500000, "1": 9000000000000}}',
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "endingOffsets": {"endingOffsets": '{"$t": {"0": 250, "1": -1}}'},
    "endingTimestamp": {"endingTimestamp": "1650000000000"},
    "endingOffsetsByTimestamp": {"endingOffsetsByTimestamp": '{"$t": {"0": 1650000000000, "1": 1760000000000}}'},
    "includeHeaders": {"includeHeaders": "false"},
    "minPartitions": {"minPartitions": "7"},
    "maxRecordsPerPartition": {"maxRecordsPerPartition": "300"},
    "options without effect": {
        "groupIdPrefix": "spark",
        "kafkaConsumer.pollTimeoutMs": "60000",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "5",
    },
    "kafka.isolation.level": {"kafka.isolation.level": "read_uncommitted"},
    "kafka.max.partition.fetch.bytes": {"kafka.max.partition.fetch.bytes": "2000"},
}
STREAMS = {
    "maxOffsetsPerTrigger": {"maxOffsetsPerTrigger": "700"},
    "minOffsetsPerTrigger": {"minOffsetsPerTrigger": "100"},
    "maxTriggerDelay": {"minOffsetsPerTrigger": "100000", "maxTriggerDelay": "1s"},
}


def test_a_random_workload_is_the_same_row_by_row(spark, options, bootstrap, name):
    frames = [spark.read.format(source).options(**options({})).load() for source in (BUILT_IN, OURS)]
    assert_df_equality(frames[1], frames[0], ignore_row_order=True)
    seen = sorted(frames[1].select("partition", "offset", "value").collect())
    assert [tuple(row) for row in seen] == [
        (partition, offset, value) for _, partition, offset, _, _, value, _ in librdkafkas(bootstrap, name, 2)
    ]


def test_every_option_of_the_built_in_source_is_tried():
    tried = {option for given in (*BATCH_READS.values(), *STREAMS.values()) for option in given}
    assert tried | {"subscribe", "failOnDataLoss"} >= set(SOURCE_OPTIONS)


@pytest.fixture(scope="module")
def places(spark, bootstrap, name):
    """Partition, offset and milliseconds of each record, as the built-in source reads them."""
    options = ALIKE | {"kafka.bootstrap.servers": bootstrap, "subscribe": name}
    frame = spark.read.format(BUILT_IN).options(**options).load()
    return [tuple(row) for row in frame.select("partition", "offset", F.unix_millis("timestamp")).collect()]


def by_offsets(given, name, places):
    """The options of a read whose bounds are times, with the offsets of the first records at or after them instead.
    With times, the built-in source starts or ends at a transaction's marker if that is newer than the records.
    """
    bounds = {}
    for bound in ("starting", "ending"):
        if not {f"{bound}Timestamp", f"{bound}OffsetsByTimestamp"} & given.keys():
            continue
        times = json.loads(given.get(f"{bound}OffsetsByTimestamp", "{}").replace("$t", name)).get(name, {})
        offsets = {}
        for partition in ("0", "1"):
            time = int(times.get(partition, given.get(f"{bound}Timestamp", 0)))
            of_partition = [(offset, at) for number, offset, at in places if str(number) == partition]
            after_all = max(offset for offset, _ in of_partition) + 1
            offsets[partition] = min((offset for offset, at in of_partition if at >= time), default=after_all)
        bounds[f"{bound}Offsets"] = json.dumps({name: offsets})
    return bounds or given


@pytest.mark.parametrize("case", BATCH_READS)
def test_a_batch_read_returns_the_same_rows(spark, options, name, places, tell, case):
    given = BATCH_READS[case]
    theirs = by_offsets(given, name, places)
    frames = [
        spark.read.format(source).options(**options(read)).load()
        for source, read in ((BUILT_IN, theirs), (OURS, given))
    ]
    assert frames[0].schema == frames[1].schema
    found = [summary(frame) for frame in frames]
    for source, (rows, checksum) in zip((BUILT_IN, OURS), found, strict=True):
        tell(case, source, rows, checksum)
    assert found[0] == found[1]
    assert found[0][0] > 0


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_returns_the_same_rows_in_the_same_micro_batches(spark, options, tell, tmp_path, case):
    found = {}
    for source in (BUILT_IN, OURS):
        batches: list[tuple[int, int]] = []

        def collect(frame, batch_id, batches=batches):
            batches.append(summary(frame))

        given = options({"startingOffsets": "earliest"} | STREAMS[case])
        query = spark.readStream.format(source).options(**given).load().writeStream.foreachBatch(collect)
        query = query.option("checkpointLocation", str(tmp_path / source))
        query.trigger(availableNow=True).start().awaitTermination()
        found[source] = batches
        tell(case, source, sum(rows for rows, _ in batches), sum(checksum for _, checksum in batches))
    assert found[OURS] == found[BUILT_IN]
    assert found[OURS]


def test_a_read_that_may_lose_data_returns_the_same_rows(spark, bootstrap, topic, options, tell):
    name = topic("lost")
    produce(bootstrap, name, [b"%d" % n for n in range(20)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [deleted] = admin.delete_records([TopicPartition(name, 0, 13)]).values()
    assert deleted.result(30).low_watermark == 13
    given = {"subscribe": name, "startingOffsets": f'{{"{name}": {{"0": 0}}}}', "failOnDataLoss": "false"}
    found = [summary(spark.read.format(source).options(**options({}) | given).load()) for source in (BUILT_IN, OURS)]
    for source, (rows, checksum) in zip((BUILT_IN, OURS), found, strict=True):
        tell("failOnDataLoss", source, rows, checksum)
    assert found[0] == found[1]
    assert found[0][0] == 7


AFTER_ITS_END = {
    "offsets": {"startingOffsets": '{"$t": {"0": 2}}', "endingOffsets": '{"$t": {"0": 1}}'},
    "the log's end": {"startingOffsets": '{"$t": {"0": 100}}'},
    "times": {"startingTimestamp": str(LATER + 2), "endingTimestamp": str(LATER + 1)},
}


@pytest.fixture(scope="module")
def three(bootstrap, topic):
    """A topic with three records, a millisecond apart."""
    name = topic("three", config=KEEP)
    for number in range(3):
        produce(bootstrap, name, [b"%d" % number], timestamp=LATER + number)
    return name


@pytest.mark.parametrize("case", AFTER_ITS_END)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_read_that_would_start_after_its_end_fails_with_both_sources(spark, bootstrap, three, options, case, fails):
    given = {name: value.replace("$t", three) for name, value in AFTER_ITS_END[case].items()}
    given |= {"subscribe": three, "failOnDataLoss": fails}
    for source, error in ((BUILT_IN, "greater than the (resolved )?end offset"), (OURS, "would start after its end")):
        with pytest.raises(Exception, match=error):
            spark.read.format(source).options(**options({}) | given).load().collect()


@pytest.mark.parametrize("source", [BUILT_IN, OURS])
def test_a_read_that_starts_at_its_end_has_no_rows_with_both_sources(spark, three, options, source):
    at = {f"{bound}Offsets": f'{{"{three}": {{"0": 2}}}}' for bound in ("starting", "ending")}
    assert spark.read.format(source).options(**options({}) | {"subscribe": three} | at).load().count() == 0


def test_the_options_of_the_built_in_source_are_those_of_its_class(spark):
    loader = spark.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    provider = loader.loadClass("org.apache.spark.sql.kafka010.KafkaSourceProvider$")
    names = set()
    for field in provider.getDeclaredFields():
        if field.getType().getName() == "java.lang.String":
            field.setAccessible(True)
            names.add(str(field.get(None)))
    words = {name for name in names if name.replace(".", "").isalpha() and not name.startswith("org.")}
    assert words == {option.lower() for option in SOURCE_OPTIONS} | {"topic"}
