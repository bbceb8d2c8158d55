"""Half an hour of faults while a query copies 5,000 numbered records a second.

Drivers, Python workers and the broker are killed (SIGKILL), queries stopped and started, drivers told to end (SIGTERM),
in turns and at random times. `KAFKA_EOS_SOAK_SECONDS=300` makes it shorter.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException, Producer

from lab.soak.check import NumbersOutcome, judge_numbers
from lab.soak.drivers import cause
from spark_kafka_eos.testing.driver import Driver, python_environment, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.process_tree import process_tree
from spark_kafka_eos.testing.read_offsets import group_offsets
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.reading import await_stable

JOBS = Path(__file__).parent / "jobs"
SOURCE, TARGET = "soak-in", "soak-out"
SECONDS, RATE, VALUE_BYTES, PARTITIONS = int(os.environ.get("KAFKA_EOS_SOAK_SECONDS", "1800")), 5_000, 100, 4
PATIENCE = 300.0  # seconds to go on after a fault, on a slow machine
_TICK = 0.01
_FAR_BEHIND = 10  # seconds of records: with more, the producer leaves out time rather than send them all at once


class Numbers:
    """A producer that sends numbers to each partition in turn, from 0 on, at a steady rate, in a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.produced = [0] * PARTITIONS
        self.left_out = 0.0  # seconds
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "log_level": 2,
                "enable.idempotence": True,
                "message.timeout.ms": 0,  # a broker that is killed comes back
                "queue.buffering.max.messages": 1_000_000,
                "linger.ms": 5,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started = time.monotonic()
        while not self._over.wait(_TICK):
            due = int((time.monotonic() - started - self.left_out) * RATE) - sum(self.produced)
            if due > RATE * _FAR_BEHIND:
                self.left_out += due / RATE - _FAR_BEHIND
                continue
            for number in range(sum(self.produced), sum(self.produced) + due):
                partition = number % PARTITIONS
                value = b"%0*d" % (VALUE_BYTES, self.produced[partition])
                self._producer.produce(SOURCE, value, partition=partition)
                self.produced[partition] += 1
            self._producer.poll(0)

    def end(self) -> None:
        """Return when all are acknowledged."""
        self._over.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What was `produced` in each partition, how the output compares, and figures for the table."""

    produced: Sequence[int]
    outcome: NumbersOutcome
    told: dict[str, object]


class Soak:
    """The query, its drivers one after the other, and what is done to them. `job` is the drivers' program, with an
    `argument` of its own.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, job: str, argument: str) -> None:
        self.kafka, self.folder, self.job, self.argument = kafka, folder, JOBS / job, argument
        self.chance = random.Random(SECONDS)
        self.drivers: list[Driver] = []  # the last two
        self.started = 0
        self.faults: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()  # drivers that ended by themselves, by cause
        self.kinds: dict[str, Callable[[], None]] = {
            "driver killed": self.kill_driver,
            "worker killed": self.kill_worker,
            "broker killed": self.kill_broker,
            "query stopped": self.stop_query,
            "driver terminated": self.terminate_driver,
        }

    @property
    def log(self) -> Path:
        return self.folder / f"driver-{self.started:03}.log"

    @property
    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("driver-*.log")))

    @property
    def committed(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return sum(group_offsets(self.kafka.bootstrap, TARGET, SOURCE).values())
            except KafkaException:  # a broker that has just started does not know yet that it is the coordinator
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)  # a broker tells nobody when it has loaded the group

    def start(self) -> None:
        """Start a driver. The JVM of the one before is dead; its Python processes may live until the next start."""
        stop = self.folder / "stop"
        stop.unlink(missing_ok=True)
        if len(self.drivers) == 2:
            self.drivers.pop(0).kill()
        self.started += 1
        driver = Driver(
            self.job,
            [self.kafka.bootstrap, SOURCE, TARGET, str(self.folder / "checkpoint"), self.argument, str(stop)],
            conf=[
                *("--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=WARN"),
                *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
            ],
            # With the plain Python, a worker is a child of the daemon that `ps` tells.
            env=python_environment() | {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(spark_submit().parents[1])},
            log=self.log,
        )
        self.drivers.append(driver)

    def revive(self) -> None:
        """Start another driver if this one has ended by itself, as a cluster manager would."""
        if not self.drivers[-1].running:
            self.ended[cause(self.log.read_text(errors="replace").splitlines())] += 1
            self.start()

    def await_progress(self, until: Callable[[], bool] | None = None) -> None:
        """Until something more is committed, or until that holds."""
        before, deadline = self.committed, time.monotonic() + PATIENCE
        while not (until() if until else self.committed > before):
            self.revive()
            assert time.monotonic() < deadline, f"{self.committed} are committed:\n{self.logs[-5_000:]}"
            time.sleep(0.5)  # nobody tells that a group's offsets have moved, or that a driver has ended

    def harm(self, kind: str) -> None:
        self.faults[kind] += 1
        self.kinds[kind]()
        self.revive()

    def kill_driver(self) -> None:
        """Its JVM alone: the tasks' Python processes have an open transaction then."""
        os.kill(self.drivers[-1].pid, signal.SIGKILL)
        self.await_end()
        self.start()

    def kill_worker(self) -> None:
        self.await_progress(until=self._kill_a_worker)

    def _kill_a_worker(self) -> bool:
        """Whether there was one: not while a driver starts."""
        workers = workers_of(self.drivers[-1].pid)
        with suppress(psutil.NoSuchProcess):
            if workers:
                self.chance.choice(workers).kill()
                return True
        return False

    def kill_broker(self) -> None:
        self.kafka.kill(1)
        time.sleep(self.chance.uniform(0, 8))  # so long it is gone
        self.kafka.start(1)

    def stop_query(self) -> None:
        stop = self.folder / "stop"
        stop.touch()
        self.await_progress(until=lambda: not stop.exists())

    def terminate_driver(self) -> None:
        os.kill(self.drivers[-1].pid, signal.SIGTERM)
        self.await_end()
        self.start()

    def await_end(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.drivers[-1].running:
            assert time.monotonic() < deadline, "the driver does not end"
            time.sleep(0.1)

    def play(self, seconds: float) -> None:
        """Each kind once in as many faults as there are kinds; some before the query has recovered from the last."""
        end = time.monotonic() + seconds
        for kind in self._in_turns():
            soon = self.chance.random() < 0.25
            if not soon:
                self.await_progress()
            gap = self.chance.uniform(0, 5 if soon else min(50, seconds / 10))
            if time.monotonic() + gap > end:
                break
            time.sleep(gap)
            self.revive()
            self.harm(kind)

    def _in_turns(self) -> Iterator[str]:
        while True:
            yield from self.chance.sample(list(self.kinds), len(self.kinds))

    def run(self) -> Ran:
        """Produce and play, until all is committed and the last driver has ended."""
        numbers, started = Numbers(self.kafka.bootstrap), time.monotonic()
        self.start()
        self.play(SECONDS)
        numbers.end()
        seconds = time.monotonic() - started - numbers.left_out
        self.await_progress(until=lambda: self.committed == sum(numbers.produced))
        os.kill(self.drivers[-1].pid, signal.SIGTERM)
        self.await_end()
        await_stable(self.kafka.bootstrap, TARGET)
        messages = read_topic(self.kafka.bootstrap, TARGET, "read_committed")
        outcome = judge_numbers(numbers.produced, ((m.partition() or 0, int(m.value() or b"")) for m in messages))
        print(dict(self.faults), dict(self.ended))
        if SECONDS >= 600:
            assert self.faults.keys() == self.kinds.keys()
        told = {
            "records": f"{outcome.found:,}",
            "lost": outcome.lost,
            "duplicated": outcome.duplicated,
            "disordered": outcome.disordered,
            "records/s": round(sum(numbers.produced) / seconds),
            "drivers": self.started,
            "faults": self.faults.total(),
            "seconds left out": round(numbers.left_out),
        }
        return Ran(produced=numbers.produced, outcome=outcome, told=told)

    def close(self) -> None:
        for driver in self.drivers:
            driver.kill()


def workers_of(pid: int) -> list[psutil.Process]:
    """The Python workers under a driver: what its daemon has forked."""
    daemons: dict[psutil.Process, psutil.Process | None] = {}
    for process in process_tree(pid):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "pyspark.daemon" in process.cmdline():
                daemons[process] = process.parent()
    return [process for process, parent in daemons.items() if parent in daemons]


@contextmanager
def soaked(kafka_version: str, folder: Path, job: str, argument: str) -> Iterator[Soak]:
    """A broker with the topics, and the query's soak, which has not begun. pytest keeps its folder after a failure."""
    config = {"log.segment.bytes": 1 << 25}  # after a kill, the broker reads the segments that it was writing
    with EmbeddedKafka(kafka_version, config=config, directory=folder / "kafka", start_timeout=PATIENCE) as kafka:
        for topic in (SOURCE, TARGET):
            kafka.create_topic(topic, PARTITIONS)
        soak = Soak(kafka, folder, job, argument)
        yield soak
        soak.close()
