"""Batch writes to Kafka 2.8, which lacks what exactly-once needs: refused, or written as far as idempotence allows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.broker.test_old_formats import configure, magics
from tests.reading import librdkafkas
from tests.zookeeper import serve

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

OLD, NEW = "0.10.0", "2.8"  # message.format.version


class Before3(NamedTuple):
    bootstrap: str
    log: Path

    def written(self, topic: str) -> tuple[list[bytes | None], set[int]]:
        """The values that librdkafka reads, and the message formats in the log."""
        values = [row[5] for row in librdkafkas(self.bootstrap, topic)]
        return sorted(values, key=str), set(magics((self.log / f"{topic}-0").glob("*.log")))


@pytest.fixture(scope="module")
def kafka28(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Before3]:
    folder = tmp_path_factory.mktemp("kafka28")
    with serve(folder, "2.8.2") as bootstrap:
        yield Before3(bootstrap, folder / "log")


def save(spark: SparkSession, kafka: Before3, topic: str, message_format: str, **options: str) -> None:
    configure(kafka.bootstrap, topic, {"message.format.version": message_format})
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic} | options
    rows = spark.range(3).selectExpr("'k' AS key", "string(id) AS value")
    rows.write.format("kafka-eos").mode("append").options(**given).save()


def test_exactly_once_is_refused_before_anything_is_sent(spark, kafka28):
    with pytest.raises(PySparkException, match=r"lack DescribeTransactions, Fetch .* Upgrade to Kafka 3\.3 or later"):
        save(spark, kafka28, "refused", NEW)
    assert kafka28.written("refused") == ([], set())


@pytest.mark.parametrize(("message_format", "magic"), [(OLD, 1), (NEW, 2)])
@pytest.mark.parametrize("degree", ["required", "requested", "off"])
def test_at_least_once_is_written_in_either_format_unless_idempotence_is_required(
    spark, kafka28, degree, message_format, magic
):
    topic = f"{degree}-{magic}"
    how = {"deliveryGuarantee": "at-least-once", "kafka.enable.idempotence": degree}
    if (degree, message_format) == ("required", OLD):
        with pytest.raises(
            PySparkException, match=r"message\.format\.version is 0\.10\.0, with inter\.broker\.protocol"
        ):
            save(spark, kafka28, topic, message_format, **how)
        assert kafka28.written(topic) == ([], set())
        return
    save(spark, kafka28, topic, message_format, **how)
    assert kafka28.written(topic) == ([b"0", b"1", b"2"], {magic})
