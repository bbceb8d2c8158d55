"""A query whose Python processes are all forked from a server, started as users do: a copy, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from spark_kafka_eos.testing.driver import Driver
from tests.pages import ROOT
from tests.reading import read_committed
from tests.unit.kafka_eos_python.installed import environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def is_server(process: psutil.Process, runtime: Path) -> bool:
    line = " ".join(process.info["cmdline"] or ())
    return f"-m kafka_eos_python.server {runtime}" in line


def launcher(folder: Path) -> Path:
    return environment(folder / "environment")


def plain(_: Path) -> Path:
    return Path(sys.executable)


@pytest.mark.parametrize(
    ("python", "switch", "least"),
    [
        pytest.param(launcher, "", 6, id="kafka-eos-python"),  # the source, four planners, the commit; and tasks
        pytest.param(plain, "", 3, id="nothing set"),  # what plans and commits after the source was created
        pytest.param(plain, "off", 0, id="turned off"),
    ],
)
def test_spark_submit_has_its_processes_forked_and_leaves_none(
    kafka, tmp_path: Path, tmp_path_factory, topic, python, switch, least
) -> None:
    source, output = topic(partitions=2), topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(100):
        producer.produce(source, value=f"v{number}")
    producer.flush()
    runtime = tmp_path_factory.mktemp("run")
    variables = {
        "PYSPARK_PYTHON": str(python(tmp_path)),
        "XDG_RUNTIME_DIR": str(runtime),
        "KAFKA_EOS_FORK_SERVER": switch,
    }
    arguments = [
        "--bootstrap-servers",
        kafka.bootstrap,
        "--from",
        source,
        "--to",
        output,
        "--available-now",
    ]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint")]
    conf = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"]
    servers: list[psutil.Process] = []
    forked: set[psutil.Process] = set()

    def look() -> None:
        if not servers:
            servers.extend(each for each in psutil.process_iter(["cmdline"]) if is_server(each, runtime))
        with contextlib.suppress(psutil.NoSuchProcess):
            for server in servers:
                forked.update(server.children())

    with Driver(ROOT / "jobs" / "copy_topic.py", arguments, conf=conf, env=variables, log=tmp_path / "log") as driver:
        driver.wait(timeout=500, meanwhile=look)
    copied = sorted(bytes(message.value() or b"") for message in read_committed(kafka.bootstrap, output))
    assert copied == sorted(f"v{number}".encode() for number in range(100))
    assert len(servers) == bool(least)
    assert len(forked) >= least
    _, alive = psutil.wait_procs([*servers, *forked], timeout=30)
    assert alive == []
    assert list(runtime.glob(f"kafka-eos-python-{os.getuid()}/*")) == []
