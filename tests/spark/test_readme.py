"""The examples of the README and of docs/ run, in their order, on the embedded broker (see tests/pages.py)."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.pages import EXAMPLES, EXAMPLES_ELSEWHERE, ROOT, check, compare, python_blocks
from tests.pages import run as run_page
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def run(page: str, spark: SparkSession, bootstrap: str, folder: Path, **elsewhere: str) -> int:
    """Run the page's blocks, to the end of the queries that each one starts; how many blocks there were."""

    def finish() -> None:
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()

    return run_page(page, bootstrap, str(folder), between=finish, Row=Row, **elsewhere)


def test_the_readmes_example_writes_the_paid_orders_once(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    kafka.create_topic("orders", partitions=4)
    kafka.create_topic("orders-paid", partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(300):
        paid = "true" if number % 3 == 0 else "false"
        producer.produce("orders", key=str(number), value=f'{{"order": {number}, "paid": {paid}}}')
    producer.flush()

    assert run("README.md", spark, kafka.bootstrap, tmp_path) == 1
    keys = [int(bytes(found.key() or b"")) for found in read_committed(kafka.bootstrap, "orders-paid")]
    assert sorted(keys) == list(range(0, 300, 3))


@pytest.mark.parametrize("page", EXAMPLES)
def test_every_example_of_a_guide_shows_what_it_says(
    page: str,
    spark: SparkSession,
    kafka: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(ROOT)
    for topic in EXAMPLES[page]:
        kafka.create_topic(topic, partitions=3)
    second = {}
    for topic in EXAMPLES_ELSEWHERE.get(page, ()):
        another: EmbeddedKafka = request.getfixturevalue("elsewhere")
        another.create_topic(topic, partitions=3)
        second = {"elsewhere": another.bootstrap}
    assert run(page, spark, kafka.bootstrap, tmp_path, **second) == len(python_blocks(ROOT / page)) > 0


def test_the_page_on_verify_traces_a_copy_and_proves_it(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    kafka.create_topic("untraced", partitions=2)
    kafka.create_topic("traced", partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce("untraced", key=str(number), value=str(number))
    producer.flush()
    assert run("docs/verify.md", spark, kafka.bootstrap, tmp_path) == 2


def test_a_shown_value_that_is_not_the_lines_value_fails() -> None:
    exec(compare("1 + 1  # -> 2\n"), {"check": check})
    with pytest.raises(AssertionError):
        exec(compare("1 + 1  # -> 3\n"), {"check": check})
