"""`kafka-eos broker` as a user runs it: a process that prints where it listens and stops cleanly."""

import signal
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from tests.interrupts import heeding_ctrl_c
from tests.terminal import KAFKA_EOS

pytestmark = pytest.mark.broker

COMMAND = [*KAFKA_EOS, "broker", "--port", "0"]


@pytest.fixture
def running(tmp_path) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--directory", str(tmp_path), "--topic", "orders:3", "--topic", "alerts"]
    with heeding_ctrl_c():
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        yield process
        process.kill()


def listening(process: subprocess.Popen[str]) -> str:
    """The first line on standard output, printed once the topics are there."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_creates_the_topics_runs_until_a_signal_and_stops_cleanly(running, tmp_path, number):
    bootstrap = listening(running)
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"orders": 3, "alerts": 1}
    running.send_signal(number)
    _, notes = running.communicate(timeout=30)
    assert running.returncode == 0
    assert f'.option("kafka.bootstrap.servers", "{bootstrap}")' in notes
    assert "Stopped." in notes
    assert "shut down completed" in (tmp_path / "node-1" / "broker.log").read_text()


def test_a_directory_with_the_topics_is_used_again(running, tmp_path):
    listening(running)
    running.terminate()
    running.wait(timeout=30)
    again = [*COMMAND, "--directory", str(tmp_path), "--topic", "orders:3"]
    with subprocess.Popen(again, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert listening(process)
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_a_broker_that_dies_ends_the_command_with_an_error(running, tmp_path):
    listening(running)
    (broker,) = [p for p in psutil.Process(running.pid).children() if "kafka.Kafka" in p.cmdline()]
    broker.kill()
    _, notes = running.communicate(timeout=30)
    assert running.returncode == 3
    assert "node 1, exited with code -9" in notes
    assert "Traceback" not in notes
