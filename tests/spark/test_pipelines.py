"""The pipeline of docs/pipelines.md, killed with SIGKILL in a micro-batch and started again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Driver, Kill, committed_batches, python_environment, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(900), pytest.mark.slow]

ORDERS = 300  # before each run


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([Kill(point="ended", batch=0)], id="committed"),
        pytest.param(
            [Kill(point="half appended", batch=0), Kill(point="offsets committed", batch=1)],
            id="uncommitted",
        ),
    ],
)
def test_a_pipeline_killed_in_mid_batch_writes_each_record_once(
    kafka: EmbeddedKafka, tmp_path: Path, kills: list[Kill]
) -> None:
    point = kills[0].point.replace(" ", "-")
    orders, paid = kafka.create_topic(f"pipeline-in-{point}", 4), kafka.create_topic(f"pipeline-out-{point}", 3)
    pipeline = write_pipeline(tmp_path, kafka.bootstrap, orders, paid)
    checkpoint = tmp_path / "orders-pipeline/_checkpoints/paid/paid_orders/0"

    for number, kill in enumerate(kills):
        produce(kafka.bootstrap, orders, number)
        folder = tmp_path / str(number)
        folder.mkdir()
        with run(pipeline, kill.environment(folder)) as killed:
            killed.wait_until((folder / "reached").exists, timeout=240)
            assert killed.kill() >= 2, "a JVM and at least one Python process were alive"
        assert committed_batches(checkpoint) == kill.batch
    produce(kafka.bootstrap, orders, len(kills))
    with run(pipeline) as last:
        last.wait(timeout=240)

    keys = Counter(int(message.key() or b"") for message in read_committed(kafka.bootstrap, paid))
    assert keys == Counter(range(0, ORDERS * (len(kills) + 1), 3))
    assert committed_batches(checkpoint) > len(kills)


def test_a_full_refresh_is_refused_instead_of_writing_everything_again(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    orders, paid = kafka.create_topic("pipeline-in-refresh", 1), kafka.create_topic("pipeline-out-refresh", 1)
    pipeline = write_pipeline(tmp_path, kafka.bootstrap, orders, paid)
    produce(kafka.bootstrap, orders, 0)
    with run(pipeline) as first:
        first.wait(timeout=240)
    with run(pipeline, arguments=["--full-refresh-all"]) as refresh, pytest.raises(ToolFailed, match="exit code 1"):
        refresh.wait(timeout=240)
    assert "LedgerRefused" in (pipeline / "log").read_text()
    assert len(read_committed(kafka.bootstrap, paid)) == ORDERS / 3
    checkpoints = tmp_path / "orders-pipeline/_checkpoints/paid"
    assert (committed_batches(checkpoints / "paid_orders/0"), (checkpoints / "paid_orders/1").is_dir()) == (1, True)

    flow = pipeline / "transformations" / "paid.py"
    start = 'startingOffsets="earliest"'
    goes_on = f'startingOffsets="committed", **{{"sink.kafka.transactional.id": "{paid}"}}'
    flow.write_text(flow.read_text().replace(start, goes_on).replace("paid_orders", "paid_again"))
    produce(kafka.bootstrap, orders, 1)
    with run(pipeline) as renamed:
        renamed.wait(timeout=240)
    keys = Counter(int(message.key() or b"") for message in read_committed(kafka.bootstrap, paid))
    assert keys == Counter(range(0, 2 * ORDERS, 3))
    assert committed_batches(checkpoints / "paid_again/0") >= 1


def run(pipeline: Path, env: dict[str, str] | None = None, arguments: Sequence[str] = ()) -> Driver:
    """`spark-pipelines run` of this pipeline."""
    settings = {"SPARK_TESTING": "1"}  # gives the server any free port
    return Driver(
        pipeline / "spark-pipeline.yml",
        arguments,
        conf=["--remote", "local[2]", "--conf", "spark.ui.enabled=false", "run", "--spec"],
        env=python_environment() | settings | (env or {}),
        log=pipeline / "log",
        submit=spark_submit().with_name("spark-pipelines"),
    )


def write_pipeline(folder: Path, bootstrap: str, orders: str, paid: str) -> Path:
    """The page's two files, for these topics."""
    page = (ROOT / "docs" / "pipelines.md").read_text()
    specification, definitions = (
        re.search(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1]  # type: ignore[index]
        for language in ("yaml", "python")
    )
    pipeline = folder / "pipeline"
    (pipeline / "transformations").mkdir(parents=True)
    (pipeline / "spark-pipeline.yml").write_text(specification.replace("/tmp/", f"{folder}/"))
    for shown, used in {
        "localhost:9092": bootstrap,
        'topic": "orders-paid"': f'topic": "{paid}"',
        'id": "orders-paid"': f'id": "{paid}"',
        'subscribe="orders"': f'subscribe="{orders}"',
    }.items():
        assert shown in definitions
        definitions = definitions.replace(shown, used)
    (pipeline / "transformations" / "paid.py").write_text(definitions)
    return pipeline


def produce(bootstrap: str, topic: str, run: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(ORDERS * run, ORDERS * (run + 1)):
        producer.produce(topic, key=str(number), value=json.dumps({"paid": "true" if number % 3 == 0 else "false"}))
    producer.flush()
