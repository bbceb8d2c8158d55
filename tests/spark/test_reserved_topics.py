"""A row that names a ledger topic, on each way to write: what it would forge is not there, and nothing else is lost."""

from __future__ import annotations

import itertools
from typing import cast

import pytest
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter
from spark_kafka_eos.dead_letters.headers import letter_of
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.entry import LedgerEntry, digest
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.progress import last_entry
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

_numbers = itertools.count(1)
FORGED = encode_record(LedgerEntry(query_id="victim's", batch_id=7, digest=digest("range"), serial=9)).decode()
STREAMS = ["sink", "driver", "executors", "at-least-once"]
BATCHES = ["batch", "batch with txnAppId", "batch at-least-once"]
MORE = {"driver", "batch with txnAppId"}


class Forger:
    """Rows of which the last one forges an entry of a victim that has none yet."""

    def __init__(self, spark, kafka, folder, way):
        self.spark, self.kafka, self.folder, self.way = spark, kafka, folder, way
        self.name = f"forged-{next(_numbers)}"
        self.victim = f"{self.name}-victim"
        self.source, self.out, self.dead = (kafka.create_topic(f"{self.name}-{each}") for each in ("in", "out", "dead"))
        without = way.startswith("batch") or way == "at-least-once"
        self.own = LEDGER_TOPIC if without else f"{self.name}-books"
        with self.cluster() as cluster:
            LedgerTopic(cluster, LEDGER_TOPIC, self.victim).ensure()

    def cluster(self):
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.transactional.id": "x"}
        return Cluster(sink_options(given).client)

    def forged(self):
        """The victim's entries, in the default ledger topic and in the forger's own."""
        with self.cluster() as cluster:
            return [last_entry(cluster, topic, self.victim) for topic in {LEDGER_TOPIC, self.own}]

    def columns(self, frame, topic):
        wrong = F.col("value").cast("string") == "forge"
        return frame.select(
            F.when(wrong, F.lit(self.victim)).cast("binary").alias("key"),
            F.when(wrong, F.lit(FORGED)).otherwise(F.col("value").cast("string")).cast("binary").alias("value"),
            F.when(wrong, F.lit(topic)).otherwise(F.lit(self.out)).alias("topic"),
        )

    def write(self, topic, **more):
        given = {"kafka.bootstrap.servers": self.kafka.bootstrap, **more}
        if "at-least-once" in self.way:
            given["deliveryGuarantee"] = "at-least-once"
        if self.way == "batch with txnAppId":
            given |= {"txnAppId": self.name, "txnVersion": "1"}
        if self.way.startswith("batch"):
            frame = self.spark.createDataFrame([(b"good",), (b"forge",)], "value binary")
            self.columns(frame, topic).write.format("kafka-eos").mode("append").options(**given).save()
            return
        if "at-least-once" not in self.way:
            given |= {"kafka.transactional.id": self.name, "ledgerTopic": self.own}
        read = {"kafka.bootstrap.servers": self.kafka.bootstrap, "subscribe": self.source}
        frame = self.spark.readStream.format("kafka-eos").options(**read, startingOffsets="earliest").load()
        stream = self.columns(frame, topic).writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        if self.way in ("driver", "executors"):
            stream = stream.foreachBatch(TransactionalWriter(given | {"appendMode": self.way}))
        else:
            stream = stream.format("kafka-eos").options(**given)
        stream.trigger(availableNow=True).start().awaitTermination()

    def values(self, topic):
        return [message.value() for message in read_committed(self.kafka.bootstrap, topic)]


# Each way has four queries; what the slow ones encode and append with, others do.
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.slow if way in MORE else ()) for way in STREAMS + BATCHES],
)
def test_a_row_forges_no_entry_and_stops_nothing_if_there_is_a_topic_for_it(spark, kafka, tmp_path, way):
    forger = Forger(spark, kafka, tmp_path, way)
    if not way.startswith("batch"):
        produce(kafka.bootstrap, forger.source, [b"good", b"forge"])
    for topic in (LEDGER_TOPIC, forger.own):
        with pytest.raises(Exception, match=f"a row has topic '{topic}'"):
            forger.write(topic)
        assert forger.values(forger.out) == []
    forger.write(LEDGER_TOPIC, deadLetterTopic=forger.dead)
    assert forger.values(forger.out) == [b"good"]
    (message,) = read_committed(kafka.bootstrap, forger.dead)
    letter = letter_of(cast("list[tuple[str, bytes | None]]", message.headers()))
    assert letter is not None
    assert (letter.cause, letter.output_topic) == ("topic-not-allowed", LEDGER_TOPIC)
    assert forger.forged() == [None] * len({LEDGER_TOPIC, forger.own})


def test_a_topic_pattern_that_matches_the_ledger_copies_no_entry(spark, kafka, tmp_path):
    """The rows of a source name their topics; a copy to the same names would write each entry again."""
    forger = Forger(spark, kafka, tmp_path, "driver")
    books = kafka.create_topic(f"{forger.name}-books", 1, {"cleanup.policy": "compact"})
    produce(kafka.bootstrap, books, [FORGED.encode()], key=forger.victim.encode())
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribePattern": f"{forger.name}-(in|books)"}
    frame = spark.readStream.format("kafka-eos").options(**read, startingOffsets="earliest").load()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.transactional.id": forger.name, "ledgerTopic": books}
    refusals = {
        "false": f"topic {books}: the query reads this topic, which is a ledger topic",
        "true": f"a row has topic '{books}'",
    }
    for allow_loop, refusal in refusals.items():
        writer = TransactionalWriter({**given, "allowLoop": allow_loop})
        query = frame.writeStream.foreachBatch(writer).option("checkpointLocation", str(tmp_path / allow_loop))
        with pytest.raises(Exception, match=refusal):
            query.trigger(availableNow=True).start().awaitTermination()
    assert forger.values(books) == [FORGED.encode()]
