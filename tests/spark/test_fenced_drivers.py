"""Two drivers of one query, as an orchestrator starts them that takes the first for dead: the first one stops, with an
exit code that says that it must not be restarted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.demo.flights import late_flights, payload, read_airlines, read_flights
from spark_kafka_eos.testing.demo.run import JOB as FLIGHT_DELAYS
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from tests import held
from tests.conftest import SecuredKafka
from tests.pages import ROOT
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLIGHTS, BATCH = 900, 300


class Query:
    """A job over TLS and SASL, whose drivers share checkpoint and transactional.id."""

    def __init__(self, job: Path, arguments: list[str], secured: SecuredKafka, folder: Path) -> None:
        (folder / "client.properties").write_text(secured.properties())
        self._job, self.folder = job, folder
        self._arguments = [
            "--properties",
            str(folder / "client.properties"),
            "--checkpoint",
            str(folder / "checkpoint"),
        ]
        self._arguments += [*arguments, "--max-offsets-per-trigger", str(BATCH), "--available-now"]

    def driver(self, name: str, **environment: str) -> Driver:
        return Driver(
            self._job,
            self._arguments,
            conf=[
                "--master",
                "local[1]",
                "--conf",
                "spark.ui.enabled=false",
                "--conf",
                "spark.sql.shuffle.partitions=1",
            ],
            env=python_environment() | environment,
            log=self.folder / f"{name}.log",
        )

    def fence_the_first_driver_in_its_second_batch(self) -> str:
        """Hold one driver, let another one finish the query, then release the first. Returns how that one ended."""
        first = HeldDriver(self, "first", "offsets committed")
        with first.driver:
            first.await_point()
            with self.driver("second") as second:
                second.wait(timeout=240)
            first.release()
            with pytest.raises(ToolFailed) as ended:
                first.driver.wait(timeout=240)
        return str(ended.value)

    def let_the_first_driver_come_back_while_the_second_one_appends(self) -> str:
        """Hold one driver before it looks, and another one in the middle of the same batch; release the first, then the
        other one, which ends well. Returns how the first one ended.
        """
        late = HeldDriver(self, "first", "begun")
        with late.driver:
            late.await_point()
            live = HeldDriver(self, "second", "half appended")
            with live.driver:
                live.await_point()
                late.release()
                with pytest.raises(ToolFailed) as ended:
                    late.driver.wait(timeout=240)
                live.release()
                live.driver.wait(timeout=240)
        return str(ended.value)


class HeldDriver:
    """A driver of the query that is held at a point of its second batch."""

    def __init__(self, query: Query, name: str, point: str) -> None:
        self._folder = query.folder / f"{name} held"
        self._folder.mkdir()
        self.driver = query.driver(name, **Kill(point=point, batch=1).environment(self._folder))

    def await_point(self) -> None:
        self.driver.wait_until(lambda: held.reached(self._folder), timeout=240)

    def release(self) -> None:
        held.release(self._folder)


@pytest.mark.slow
def test_a_fenced_driver_exits_with_a_code_of_its_own_and_the_other_one_has_written_every_flight_once(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    flights, source, target = read_flights(1)[:FLIGHTS], "fenced-flights", "fenced-flights-delayed"
    send(secured, source, target, [payload(flight, aborted=False) for flight in flights])
    arguments = ["--from", source, "--to", target, "--transactional-id", target]
    ended = Query(FLIGHT_DELAYS, arguments, secured, tmp_path).fence_the_first_driver_in_its_second_batch()
    assert "exit code 90" in ended, ended
    assert "ProducerFenced" in (tmp_path / "first.log").read_text()
    written = [json.loads(m.value() or b"") for m in read_committed(secured.kafka.bootstrap, target)]
    expected = late_flights(flights, read_airlines())
    assert sorted(found["id"] for found in written) == sorted(expected)
    for name in ("first", "second"):
        assert secured.allowed[1] not in (tmp_path / f"{name}.log").read_text()


def test_a_driver_that_comes_back_late_ends_and_the_live_one_does_not_notice(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    flights, source, target = read_flights(1)[:FLIGHTS], "late-flights", "late-flights-delayed"
    send(secured, source, target, [payload(flight, aborted=False) for flight in flights])
    arguments = ["--from", source, "--to", target, "--transactional-id", target]
    query = Query(FLIGHT_DELAYS, arguments, secured, tmp_path)
    ended = query.let_the_first_driver_come_back_while_the_second_one_appends()
    assert "exit code 90" in ended, ended
    written = [json.loads(m.value() or b"") for m in read_committed(secured.kafka.bootstrap, target)]
    assert sorted(found["id"] for found in written) == sorted(late_flights(flights, read_airlines()))


@pytest.mark.slow
def test_a_late_driver_of_the_sink_ends_likewise(secured: SecuredKafka, tmp_path: Path) -> None:
    source, target = "late-from", "late-to"
    send(secured, source, target, [b"%d" % number for number in range(FLIGHTS)])
    query = Query(ROOT / "jobs" / "copy_topic.py", ["--from", source, "--to", target], secured, tmp_path)
    ended = query.let_the_first_driver_come_back_while_the_second_one_appends()
    assert "exit code 90" in ended, ended
    assert "since this run committed batch 0" in (tmp_path / "first.log").read_text()
    written = sorted(int(m.value() or b"") for m in read_committed(secured.kafka.bootstrap, target))
    assert written == list(range(FLIGHTS))


@pytest.mark.slow
def test_a_fenced_driver_of_the_sink_exits_with_that_code_too(secured: SecuredKafka, tmp_path: Path) -> None:
    source, target = "fenced-from", "fenced-to"
    send(secured, source, target, [b"%d" % number for number in range(FLIGHTS)])
    arguments = ["--from", source, "--to", target]
    ended = Query(
        ROOT / "jobs" / "copy_topic.py", arguments, secured, tmp_path
    ).fence_the_first_driver_in_its_second_batch()
    assert "exit code 90" in ended, ended
    written = sorted(int(m.value() or b"") for m in read_committed(secured.kafka.bootstrap, target))
    assert written == list(range(FLIGHTS))


def send(secured: SecuredKafka, source: str, target: str, values: list[bytes]) -> None:
    """Make both topics, and send the values to the source's one partition."""
    secured.kafka.create_topic(source, partitions=1)
    secured.kafka.create_topic(target, partitions=2)
    producer = Producer({"bootstrap.servers": secured.kafka.bootstrap})
    for value in values:
        producer.produce(source, value)
    assert producer.flush(30) == 0
