"""Source, sink and the foreachBatch writer on Spark Connect, where the driver's JVM is out of reach."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.testing.driver import python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.failing_calls import KNOWN_OVER_CONNECT
from tests.producing import produce
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.broker]

JOB = Path(__file__).parent / "jobs" / "connect_stream.py"


@pytest.fixture(scope="module")
def topic(kafka: EmbeddedKafka) -> str:
    return kafka.create_topic("connect", 2)


@pytest.fixture(scope="module")
def paid(kafka: EmbeddedKafka) -> str:
    return kafka.create_topic("connect-orders-paid", 3)


@pytest.fixture(scope="module")
def dead(kafka: EmbeddedKafka) -> str:
    return kafka.create_topic("connect-dead")


@pytest.fixture(scope="module")
def copied(kafka: EmbeddedKafka) -> str:
    return kafka.create_topic("connect-orders-copied")


@pytest.fixture(scope="module")
def errors(
    kafka: EmbeddedKafka, topic: str, paid: str, dead: str, copied: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str | None]:
    """Each query's error, all of them run in one session."""
    orders = kafka.create_topic("connect-orders", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(30):
        producer.produce(orders, key=str(number), value=json.dumps({"paid": "true" if number % 3 == 0 else "false"}))
    producer.flush()
    folder = str(tmp_path_factory.mktemp("connect"))
    return errors_of(JOB, kafka.bootstrap, topic, folder, orders, paid, dead, copied)


def errors_of(job: Path, *arguments: str, timeout: float = 280) -> dict[str, str | None]:
    """What the job prints last."""
    testing = {"SPARK_TESTING": "1"}  # a free port for the server instead of the one that everybody's has
    done = subprocess.run(
        [sys.executable, job, *arguments],
        env={**os.environ, **python_environment(), **testing},
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout,
    )
    printed: dict[str, str | None] = json.loads(done.stdout.splitlines()[-1])
    return printed


def test_the_driver_appends_and_the_executors_mode_is_refused(errors: dict[str, str | None]) -> None:
    assert errors["driver"] is None
    assert "'appendMode': executors requires a classic Spark session" in str(errors["executors"])
    assert "Set appendMode=driver or appendMode=auto" in str(errors["executors"])


def test_values_of_a_schema_registry_come_and_go(errors: dict[str, str | None]) -> None:
    assert errors["schemas"] is None


def test_a_listener_of_the_client_knows_the_rows_and_not_what_only_tasks_know(errors: dict[str, str | None]) -> None:
    assert errors["listener"] is None


def test_the_report_of_a_commit_is_on_the_server_and_the_client_says_so(errors: dict[str, str | None]) -> None:
    assert "Spark Connect runs a copy of this writer on the server" in str(errors["last_commit"])
    assert errors["inside"] is None


def test_a_second_call_for_a_batch_is_refused(errors: dict[str, str | None]) -> None:
    assert "a second call for batch 0" in str(errors["twice"])


def test_a_constant_batch_id_is_refused(errors: dict[str, str | None]) -> None:
    assert "called with batch_id 0, but the checkpoint" in str(errors["constant"])
    assert "is at batch 1 or later" in str(errors["constant"])


def test_a_stateful_batch_that_is_skipped_writes_its_state(errors: dict[str, str | None]) -> None:
    assert (errors["counts"], errors["replay"]) == (None, None)


def test_each_record_is_there_once(kafka: EmbeddedKafka, topic: str, errors: dict[str, str | None]) -> None:
    records = [m.value() or b"" for m in read_committed(kafka.bootstrap, topic)]
    values = sorted(int(value) for value in records if not value.startswith(b"odd"))
    assert values == [-50, -50, -25, -25, *range(100)]


def test_dead_letters_are_put_aside(kafka: EmbeddedKafka, topic: str, dead: str, errors: dict[str, str | None]) -> None:
    assert errors["aside"] is None
    good = [m.value() or b"" for m in read_committed(kafka.bootstrap, topic)]
    assert sorted(value for value in good if value.startswith(b"odd")) == sorted(
        b"odd %d" % n for n in range(1, 100, 2)
    )
    assert sorted(int(m.value() or b"") for m in read_committed(kafka.bootstrap, dead)) == list(range(0, 100, 2))


def test_a_function_splits_its_batch_into_good_rows_and_dead_letters(errors: dict[str, str | None]) -> None:
    assert errors["split"] is None


def test_the_readmes_example_writes_the_paid_orders_once_with_the_trigger_of_serverless_compute(
    kafka: EmbeddedKafka, paid: str, errors: dict[str, str | None]
) -> None:
    assert errors["readme"] is None
    assert sorted(int(m.key() or b"") for m in read_committed(kafka.bootstrap, paid)) == list(range(0, 30, 3))


def test_a_function_of_arrow_batches_runs_on_the_server(
    kafka: EmbeddedKafka, copied: str, errors: dict[str, str | None]
) -> None:
    assert errors["arrow"] is None
    assert len(read_committed(kafka.bootstrap, copied)) == 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_batch_follows_one_that_failed_although_the_function_caught_the_error(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Of three batches of ten records."""
    topics = [*(fails.__name__ for fails in KNOWN_OVER_CONNECT), "at-least-once"]
    source, *_ = [kafka.create_topic(name) for name in ("connect-caught", *topics)]
    produce(kafka.bootstrap, source, [b"%d" % number for number in range(30)])
    errors = errors_of(JOB.with_name("connect_caught.py"), kafka.bootstrap, source, str(tmp_path), timeout=800)
    for name in topics:
        assert "in this run, batch 1 began and did not end in a commit" in str(errors[name]), name
        assert "Nothing was committed" in str(errors[name])
        assert len(read_committed(kafka.bootstrap, name)) == 10, name
    assert "the last committed batch is 0, but the checkpoint is at batch 2" in str(errors["started again"])
