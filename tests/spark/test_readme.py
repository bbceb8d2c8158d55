"""The examples of the README and of docs/ run, in their order, on the embedded broker.

The pages' convention: python blocks of a page share a namespace; `localhost:9092` stands for the broker and `/tmp/` for
a folder of the test's own; an expression followed by `# -> value`, on one line, is compared with that value.
"""

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import Row, SparkSession

from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^(?P<indent>\s*)(?P<expression>\S.*?)\s+# -> (?P<value>.+)$", re.MULTILINE)


def run(page: str, spark: SparkSession, bootstrap: str, folder: Path) -> int:
    """Run the page's blocks; how many there were."""
    namespace: dict[str, object] = {"Row": Row, "check": check}
    blocks = BLOCK.findall((ROOT / page).read_text())
    for number, block in enumerate(blocks, start=1):
        code = block.replace("localhost:9092", bootstrap).replace("/tmp/", f"{folder}/")
        exec(compile(compare(code), f"{page}, block {number}", "exec"), namespace)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
    return len(blocks)


def compare(code: str) -> str:
    """The code with each shown value turned into a call of `check`."""
    return SHOWN.sub(r"\g<indent>check(\g<expression>, \g<value>)", code)


def check(found: object, shown: object) -> None:
    assert found == shown


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


def test_every_example_of_the_usage_page_shows_what_it_says(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    for topic in (
        "events",
        "loads",
        "events-copy",
        "events-mirror",
        "events-loud",
        "events-even",
        "events-odd",
        "marked",
        "relaxed",
    ):
        kafka.create_topic(topic, partitions=3)
    assert run("docs/usage.md", spark, kafka.bootstrap, tmp_path) > 10


def test_the_example_of_the_chaos_page_shows_what_it_says(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    kafka.create_topic("survived", partitions=3)
    assert run("docs/chaos.md", spark, kafka.bootstrap, tmp_path) == 1


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


def test_every_example_of_the_page_on_monitoring_shows_what_it_says(
    spark: SparkSession, kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    kafka.create_topic("watched", partitions=3)
    assert run("docs/monitoring.md", spark, kafka.bootstrap, tmp_path) == 2


def test_a_shown_value_that_is_not_the_lines_value_fails() -> None:
    exec(compare("1 + 1  # -> 2\n"), {"check": check})
    with pytest.raises(AssertionError):
        exec(compare("1 + 1  # -> 3\n"), {"check": check})


@pytest.mark.parametrize("page", ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))])
def test_every_link_of_a_page_leads_to_a_file_of_this_project(page: str) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
