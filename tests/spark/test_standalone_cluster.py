"""The ways of docs/deploying.md to ship the package, on a real standalone cluster whose workers do not have it.

The page's commands run as they are there, except that `pip install` is replaced by links to what is installed here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest

from lab.standalone import StandaloneCluster
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Kill, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.redone import redone
from tests.pages import ROOT
from tests.producing import produce
from tests.reading import read_committed
from tests.shipped import Shipped, packed
from tests.standalone import bare_environment, install_package

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600), pytest.mark.slow]

RECORDS, BATCH = 4_000, 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def topics(kafka: EmbeddedKafka, topic: Callable[..., str]) -> tuple[str, str]:
    """A source with records in two partitions, and an empty target."""
    source, target = topic("orders", partitions=2), topic("orders-copy", partitions=2)
    for partition in (0, 1):
        numbers = range(partition, RECORDS, 2)
        produce(kafka.bootstrap, source, (b"%d" % number for number in numbers), partition=partition)
    return source, target


def exactly_once(kafka: EmbeddedKafka, target: str) -> bool:
    return sorted(int(m.value() or b"") for m in read_committed(kafka.bootstrap, target)) == list(range(RECORDS))


def test_a_packed_environment_reaches_executors_and_a_batch_survives_the_loss_of_a_worker(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    """Both executors append; one worker is killed with its executor when half of the second batch has been appended."""
    kill, reached = Kill(point="half appended", batch=1), site / "reached"
    conf = {f"spark.executorEnv.{name}": value for name, value in kill.environment(site).items()}
    arguments = ["--append-mode", "executors", "--max-offsets-per-trigger", str(BATCH)]
    with packed(site).submit(cluster.url, kafka.bootstrap, topics, *arguments, conf=conf) as driver:
        driver.wait_until(reached.exists, timeout=240)
        killed = cluster.kill_worker_of(int(reached.read_text()))
        cluster.start_worker()
        driver.wait(timeout=240)
    assert killed >= 3, "the worker, its executor and a Python process at least"
    assert exactly_once(kafka, topics[1])
    assert list(redone((site / "driver.log").read_text().splitlines())) == [1], "the batch of the kill, and no other"


def test_a_zip_file_reaches_executors_that_have_the_compiled_packages(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    bare_environment(site / "compiled", ["numpy", "pandas", "pyarrow", "google-crc32c"])
    bare_environment(site / "pure", ["kafka-python"]).rename(site / "packages")
    install_package(site / "packages")
    shipped = Shipped("A ZIP file", site, python=site / "compiled" / "bin" / "python")
    shipped.prepare()
    with shipped.submit(cluster.url, kafka.bootstrap, topics, "--append-mode", "executors") as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


def test_with_the_package_on_every_node_nothing_is_shipped(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", requires("spark-kafka-eos") or ()))
    with Shipped("Installed on every node", site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


def test_the_python_without_archives_runs_driver_and_workers(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    needed = [*(requires("spark-kafka-eos") or ()), "pyspark"]
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", needed))
    with Shipped("A faster start", site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


def test_a_packed_environment_reaches_the_sinks_tasks(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    with packed(site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


def test_large_blocks_on_a_disk_that_the_nodes_do_not_share_are_refused_by_name(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topic: Callable[..., str]
) -> None:
    """The checkpoint's path leads each process to its own working directory, as a path on a local disk does on several
    machines."""
    source, target = topic("orders", partitions=2), topic("orders-copy", partitions=2)
    produce(kafka.bootstrap, source, [b"v" * 1_000] * 2_000)
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", requires("spark-kafka-eos") or ()))
    here = ["--checkpoint", "/proc/self/cwd/checkpoint"]
    with (
        Shipped("Installed on every node", site).submit(
            cluster.url, kafka.bootstrap, (source, target), *here
        ) as driver,
        pytest.raises(ToolFailed, match="exit code 1"),
    ):
        driver.wait(timeout=240)
    log = (site / "driver.log").read_text()
    assert "StagingLost" in log and "stagingDir" in log
    assert read_committed(kafka.bootstrap, target) == []


def test_a_worker_with_another_python_is_told_by_name_and_nothing_is_written(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    """`python` is 3.11 on the driver and on one worker, and a newer release on the other one. Spark tries a task again,
    which hides that if the other worker gets it: here it does not."""
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", requires("spark-kafka-eos") or ()))
    python = site / "opt" / "spark-kafka-eos" / "bin" / "python"
    python.unlink()
    python.write_text(
        f'#!/bin/sh\ncase $PWD in */worker-1/*) ;; */worker-*) exec {another_python()} "$@" ;; esac\n'
        f'exec {python}3 "$@"\n'
    )
    python.chmod(0o755)
    shipped, once = Shipped("Installed on every node", site), {"spark.task.maxFailures": "1"}
    with (
        shipped.submit(cluster.url, kafka.bootstrap, topics, conf=once) as driver,
        pytest.raises(ToolFailed, match=r"PYTHON_VERSION_MISMATCH.*[^1]\d? than that in driver"),
    ):
        driver.wait(timeout=240)
    assert read_committed(kafka.bootstrap, topics[1]) == []


def test_a_standalone_cluster_takes_no_python_driver_so_supervise_restarts_none(cluster: StandaloneCluster) -> None:
    command: list[str | Path] = [spark_submit(), "--master", cluster.url, "--deploy-mode", "cluster", "--supervise"]
    done = subprocess.run(
        [*command, ROOT / "jobs" / "copy_topic.py"], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    assert "Cluster deploy mode is currently not supported for python applications on standalone" in done.stderr


def another_python() -> str:
    """A newer release of Python than the tests', without any package."""
    names = [f"python3.{minor}" for minor in range(sys.version_info.minor + 1, sys.version_info.minor + 5)]
    found = [*filter(None, map(shutil.which, names))]
    found += [str(python) for name in names for python in Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for python in found:  # pyenv has programs of these names that only say what to do
        if subprocess.run([python, "-c", "pass"], check=False, capture_output=True).returncode == 0:
            return python
    raise AssertionError(f"needs a newer Python: one of {', '.join(names)}")
