"""The ways of docs/deploying.md to ship the package, on a real standalone cluster whose workers do not have it.

The page's commands run as they are there, except that `pip install` is replaced by links to what is installed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Kill
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.redone import redone
from tests.producing import produce
from tests.reading import read_committed
from tests.shipped import Shipped, packed
from tests.standalone import StandaloneCluster, bare_environment, install_package

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_with_the_package_on_every_node_nothing_is_shipped(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", requires("spark-kafka-eos") or ()))
    with Shipped("Installed on every node", site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


@pytest.mark.slow
def test_the_python_without_archives_runs_driver_and_workers(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    needed = [*(requires("spark-kafka-eos") or ()), "pyspark"]
    install_package(bare_environment(site / "opt" / "spark-kafka-eos", needed))
    with Shipped("A faster start", site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


@pytest.mark.slow
def test_a_packed_environment_reaches_the_sinks_tasks(
    cluster: StandaloneCluster, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    with packed(site).submit(cluster.url, kafka.bootstrap, topics) as driver:
        driver.wait(timeout=240)
    assert exactly_once(kafka, topics[1])


@pytest.mark.slow
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
