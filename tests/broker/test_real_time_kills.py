"""Real time under real faults, without Spark: processes that are killed, paused, overtaken and come back late, and a
broker that is killed, while records are produced. What a read_committed consumer of librdkafka sees is what was
produced, once.
"""

from __future__ import annotations

import itertools
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.failpoints import IN_REAL_TIME
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from spark_kafka_eos.testing.topic_reader import read_topic
from tests.conftest import KAFKA_39
from tests.reading import await_stable

pytestmark = [pytest.mark.broker, pytest.mark.timeout(3_000)]

PROCESS = Path(__file__).with_name("real_time_process.py")
PARTITIONS = 4


class Scene:
    """A topic that is written all the time, and processes that copy it in real time, one after the other."""

    def __init__(self, kafka, folder, seed):
        self.kafka, self.folder, self.random = kafka, folder, random.Random(seed)
        self.source, self.target = (
            kafka.create_topic("kills-in", PARTITIONS),
            kafka.create_topic("kills-out", PARTITIONS),
        )
        self.processes, self.numbers = SupervisedProcesses(), itertools.count(1)
        self.produced, self.over = 0, threading.Event()
        self.thread = threading.Thread(target=self._produce)
        self.thread.start()

    def _produce(self):
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap, "linger.ms": 0, "enable.idempotence": True})
        while not self.over.wait(0.01):
            for _ in range(3):
                producer.produce(self.source, str(self.produced).encode(), partition=self.produced % PARTITIONS)
                self.produced += 1
        producer.flush()

    def begin(self, point=None):
        """A process; it is held at the failpoint `point`."""
        number = next(self.numbers)
        folder = self.folder / str(number)
        folder.mkdir()
        arguments = [self.kafka.bootstrap, self.source, self.target, f"run {number}", str(PARTITIONS), "2", "60000"]
        held = {"KAFKA_EOS_FAILPOINT": point, "KAFKA_EOS_FAILPOINT_DIR": str(folder)} if point else {}
        settings = [f"{name}={value}" for name, value in held.items()]
        command = ["env", *settings, sys.executable, str(PROCESS), *arguments]
        return self.processes.spawn(command, log=self.folder / "processes.log"), folder / "reached"

    def committed(self):
        return Counter(int(m.value() or b"") for m in read_topic(self.kafka.bootstrap, self.target, "read_committed"))

    def await_progress(self, process):
        """Until the process has committed something."""
        before, deadline = self.committed().total(), time.monotonic() + 120
        while self.committed().total() <= before:
            assert process.poll() is None, (self.folder / "processes.log").read_text()[-2_000:]
            assert time.monotonic() < deadline, "nothing is committed"
            time.sleep(0.1)

    def killed_at_random(self):
        process, _ = self.begin()
        time.sleep(self.random.uniform(0.5, 2.5))  # wherever it is then
        process.kill()
        process.wait()

    def killed_at(self, point):
        process, reached = self.begin(point)
        deadline = time.monotonic() + 60
        while not reached.exists():
            assert process.poll() is None, (self.folder / "processes.log").read_text()[-2_000:]
            assert time.monotonic() < deadline, f"{point} was not reached"
            time.sleep(0.02)
        process.kill()
        process.wait()

    def overtaken(self):
        """A process that is paused, and comes back when the next one has committed."""
        late, _ = self.begin()
        self.await_progress(late)
        late.send_signal(signal.SIGSTOP)
        live, _ = self.begin()
        self.await_progress(live)
        late.send_signal(signal.SIGCONT)
        assert late.wait(timeout=90), "it ends by itself, with an error"
        self.await_progress(live)
        live.kill()
        live.wait()

    def broker_killed(self):
        process, _ = self.begin()
        self.await_progress(process)
        self.kafka.kill(1)
        self.kafka.start(1)
        self.await_progress(process)
        process.kill()
        process.wait()

    def end(self):
        """Let a last process copy the rest, and compare."""
        self.over.set()
        self.thread.join()
        process, _ = self.begin()
        deadline = time.monotonic() + 120
        while self.committed().total() < self.produced:
            assert process.poll() is None, (self.folder / "processes.log").read_text()[-2_000:]
            assert time.monotonic() < deadline, f"{self.committed().total()} of {self.produced}"
            time.sleep(0.2)
        process.kill()
        process.wait()
        await_stable(self.kafka.bootstrap, self.target)
        assert self.committed() == Counter(range(self.produced))


@pytest.fixture(params=[None, KAFKA_39], ids=["TV2", "TV1"])
def scene(request, kafka_version, tmp_path):
    with EmbeddedKafka(request.param or kafka_version) as kafka:
        scene = Scene(kafka, tmp_path, seed=7)
        yield scene
        scene.over.set()
        scene.thread.join()
        scene.processes.close()


def test_processes_killed_at_each_point_and_one_overtaken_copy_each_record_once(scene):
    for point in IN_REAL_TIME:
        scene.killed_at(point)
    scene.overtaken()
    scene.end()


@pytest.mark.slow
def test_two_hundred_kills_and_pauses_lose_and_repeat_nothing(scene):
    for number in range(100):
        match number % 10:
            case 8:
                scene.overtaken()
            case 9:
                scene.broker_killed()
            case 4 | 5 | 6 | 7:
                scene.killed_at(IN_REAL_TIME[number % 4])
            case _:
                scene.killed_at_random()
    scene.end()
