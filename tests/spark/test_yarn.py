"""Queries on a real YARN with a real HDFS, whose nodes have Java, Spark's jars, libhdfs and a bare Python: driver and
executors run in containers, which are killed, as are their machines.

Rows are counted as a `read_committed` consumer sees them. Needs cargo and a C compiler (tests/libhdfs.py).
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Literal

import psutil
import pytest

from lab.real_runs.witness import decoded
from spark_kafka_eos.testing.driver import Driver, Kill, spark_submit
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Passed, Proxy, Watcher
from spark_kafka_eos.testing.proxy_frames import RequestHeader
from spark_kafka_eos.testing.redone import redone
from tests import held
from tests.hadoop import HadoopCluster
from tests.pages import ROOT
from tests.producing import produce
from tests.reading import read_committed
from tests.shipped import Shipped
from tests.standalone import bare_environment, install_package

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

RECORDS, BATCH = 4_000, 2_000
COPY, JOB = ROOT / "tests" / "spark" / "jobs" / "copy_records.py", ROOT / "jobs" / "copy_topic.py"
WAYS = ("sink", "driver", "executors")
Mode = Literal["client", "cluster"]
_WAIT_S = 400
INVALID_PRODUCER_EPOCH, PRODUCER_FENCED = 47, 90
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": "2",
    "spark.yarn.jars": f"local:{spark_submit().parent.parent}/jars/*",  # on every node, as an administrator puts them
    # Their lives are too short for the optimising compiler.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.yarn.am.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="module")
def hadoop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HadoopCluster]:
    with HadoopCluster(tmp_path_factory.mktemp("hadoop") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's packed environment."""
    folder = tmp_path_factory.mktemp("packed")
    install_package(bare_environment(folder / "environment", requires("spark-kafka-eos") or ()))
    command = ["tar", "--use-compress-program=gzip -1", "-cf", "environment.tar.gz", "-C", "environment"]
    subprocess.run([*command, "bin", "lib", "pyvenv.cfg"], cwd=folder, check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def archive(hadoop: HadoopCluster, packed: Path) -> str:
    """The packed environment in HDFS, which each node unpacks once."""
    hadoop.shell("-put", packed / "environment.tar.gz", f"{hadoop.hdfs}/environment.tar.gz")
    return f"{hadoop.hdfs}/environment.tar.gz#environment"


@pytest.fixture
def topics(kafka: EmbeddedKafka, topic: Callable[..., str]) -> tuple[str, str]:
    """A source with records in two partitions, and an empty target."""
    source, target = topic("yarn-orders", partitions=2), topic("yarn-copy", partitions=2)
    for partition in (0, 1):
        numbers = range(partition, RECORDS, 2)
        produce(kafka.bootstrap, source, (b"%d" % number for number in numbers), partition=partition)
    return source, target


def exactly_once(kafka: EmbeddedKafka, target: str) -> bool:
    return sorted(int(m.value() or b"") for m in read_committed(kafka.bootstrap, target)) == list(range(RECORDS))


class Submitted:
    """How jobs are submitted from `site`, where the packed environment is unpacked, too."""

    def __init__(self, hadoop: HadoopCluster, archive: str, packed: Path, site: Path) -> None:
        self.hadoop, self.site, self._archive = hadoop, site, archive
        (site / "environment").symlink_to(packed / "environment")

    def log(self, name: str) -> Path:
        return self.site / f"{name}.log"

    def submit(
        self,
        name: str,
        mode: Mode,
        job: Path,
        *arguments: str,
        kill: Kill | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> Driver:
        """Submit a job as the application `name`. `kill` is armed wherever its processes run; see `reached`."""
        python = {"PYSPARK_PYTHON": "./environment/bin/python"}
        armed = {} if kill is None else kill.environment(self.reached(name).parent)
        settings = {**_SMALL, **(conf or {})}
        settings |= {f"spark.executorEnv.{variable}": value for variable, value in armed.items()}
        settings |= {f"spark.yarn.appMasterEnv.{variable}": value for variable, value in (python | armed).items()}
        return Driver(
            job,
            arguments,
            conf=[
                *("--master", "yarn", "--deploy-mode", mode, "--name", name, "--archives", self._archive),
                *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            ],
            env=self.hadoop.environment() | python | armed | {"SPARK_LOCAL_IP": "127.0.0.1"},
            log=self.log(name),
            submit=spark_submit(),
        )

    def reached(self, name: str) -> Path:
        (folder := self.site / f"{name}-failpoint").mkdir(exist_ok=True)
        return folder / "reached"

    def containers(self, name: str) -> str:
        """What an application's containers have written."""
        found = re.findall(r"application_\d+_\d+", self.log(name).read_text())
        return "\n".join(self.hadoop.logs(each) for each in dict.fromkeys(found))

    def attempts(self, name: str) -> int:
        [application] = set(re.findall(r"application_\d+_\d+", self.log(name).read_text()))
        return self.hadoop.attempts(application)


@pytest.fixture
def jobs(hadoop: HadoopCluster, archive: str, packed: Path, site: Path) -> Submitted:
    return Submitted(hadoop, archive, packed, site)


class Copy:
    """One query, whose checkpoint and staged blocks are in HDFS."""

    def __init__(self, jobs: Submitted, kafka: EmbeddedKafka | Proxy, topics: tuple[str, str], way: str) -> None:
        self.jobs, self._kafka, self._topics, self._way = jobs, kafka, topics, way

    def submit(self, name: str, mode: Mode, kill: Kill | None = None) -> Driver:
        checkpoint = f"{self.jobs.hadoop.hdfs}/checkpoints/{self._topics[1]}"
        given = [self._kafka.bootstrap, *self._topics, checkpoint, self._way, str(BATCH)]
        return self.jobs.submit(name, mode, COPY, *given, kill=kill)


class Ends:
    """The error codes with which brokers answered EndTxn, in their order."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def __call__(self, passed: Passed) -> Watcher | None:
        return End(self, passed.request) if passed.request.api == "EndTxn" else None


class End(Watcher):
    def __init__(self, ends: Ends, header: RequestHeader) -> None:
        self._ends, self._header = ends, header

    def responds(self, frame: bytes | bytearray) -> None:
        self._ends.codes.append(decoded("Response", self._header, frame).error_code)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_each_way_to_write_copies_every_record_once_with_checkpoint_and_blocks_in_hdfs(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str], mode: Mode, way: str
) -> None:
    name = f"{mode}-{way}"
    with Copy(jobs, kafka, topics, way).submit(name, mode) as driver:
        driver.wait(timeout=_WAIT_S)
    assert exactly_once(kafka, topics[1])
    commits = jobs.hadoop.shell("-ls", f"{jobs.hadoop.hdfs}/checkpoints/{topics[1]}/commits")
    assert re.findall(r"/commits/(\d+)$", commits, re.MULTILINE) == ["0", "1"]


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_a_batch_survives_the_loss_of_an_executor_that_had_appended_half_of_it(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str], mode: Mode
) -> None:
    name = f"executor-{mode}"
    kill, reached = Kill(point="half appended", batch=1), jobs.reached(name)
    with Copy(jobs, kafka, topics, "executors").submit(name, mode, kill) as driver:
        driver.wait_until(reached.exists, timeout=_WAIT_S)
        killed = jobs.hadoop.kill_container_of(int(reached.read_text()))
        print(f"{name}: SIGKILL to the executor's JVM {killed}")
        driver.wait(timeout=_WAIT_S)
    assert exactly_once(kafka, topics[1])
    assert list(redone(f"{jobs.log(name).read_text()}\n{jobs.containers(name)}".splitlines())) == [1]


def test_a_batch_survives_the_loss_of_a_node_with_an_executor_that_had_appended_half_of_it(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    name = "node"
    kill, reached = Kill(point="half appended", batch=1), jobs.reached(name)
    with Copy(jobs, kafka, topics, "executors").submit(name, "client", kill) as driver:
        driver.wait_until(reached.exists, timeout=_WAIT_S)
        killed = jobs.hadoop.kill_node_of(int(reached.read_text()))
        print(f"{name}: SIGKILL to a node manager and its containers, {killed} processes")
        jobs.hadoop.start_node()
        driver.wait(timeout=_WAIT_S)
    assert exactly_once(kafka, topics[1])


@pytest.mark.parametrize("point", ["half appended", "offsets committed", "ended"])
@pytest.mark.parametrize("way", ["sink", "driver"])
def test_the_second_attempt_goes_on_where_the_killed_application_master_was(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str], way: str, point: str
) -> None:
    name = f"master-{way}-{point.replace(' ', '-')}"
    kill, reached = Kill(point=point, batch=1), jobs.reached(name)
    with Copy(jobs, kafka, topics, way).submit(name, "cluster", kill) as driver:
        driver.wait_until(reached.exists, timeout=_WAIT_S)
        killed = jobs.hadoop.kill_container_of(int(reached.read_text()))
        print(f"{name}: SIGKILL to the application master's JVM {killed} at {point!r}")
        driver.wait(timeout=_WAIT_S)
    assert jobs.attempts(name) == 2
    assert exactly_once(kafka, topics[1])


@pytest.mark.parametrize("way", ["driver", "sink"])
def test_a_first_attempt_that_comes_back_after_the_second_one_has_ended_is_fenced(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str], way: str
) -> None:
    """Its machine is suspended with the node manager when only the commit is left of the second batch. YARN takes it
    for lost, and the second attempt writes that batch on the other node. Then the first one sends its commit.
    """
    name = f"late-{way}"
    kill, reached, ends = Kill(point="offsets committed", batch=1), jobs.reached(name), Ends()
    with (
        Proxy(kafka.bootstrap, watch=ends) as proxy,
        Copy(jobs, proxy, topics, way).submit(name, "cluster", kill) as driver,
    ):
        driver.wait_until(reached.exists, timeout=_WAIT_S)
        late = psutil.Process(int(reached.read_text()))
        resume = jobs.hadoop.freeze_node_of(late.pid)
        try:
            driver.wait(timeout=_WAIT_S)
            assert exactly_once(kafka, topics[1])
            of_both = list(ends.codes)
            held.release(reached.parent)
            await_that(lambda: len(ends.codes) > len(of_both), "the first attempt's commit is answered")
        finally:
            resume()
        await_that(lambda: not late.is_running(), "the first attempt ends")
    print(f"{name}: the commits of two attempts were answered with {of_both}, the late one with {ends.codes[-1]}")
    assert of_both == [0, 0]
    assert set(ends.codes[2:]) <= {INVALID_PRODUCER_EPOCH, PRODUCER_FENCED}
    assert jobs.attempts(name) == 2
    assert exactly_once(kafka, topics[1])


@pytest.mark.parametrize(("code", "attempts"), [(0, 1), (90, 2)])
def test_yarn_starts_a_fenced_driver_again_unless_it_reports_success(
    jobs: Submitted, kafka: EmbeddedKafka, topics: tuple[str, str], code: int, attempts: int
) -> None:
    """Two applications of one query: the first one is held, while the second one takes over and ends."""
    first, second = f"fenced-{code}", f"takes-over-{code}"
    source, target = topics
    given = ["--bootstrap-servers", kafka.bootstrap, "--from", source, "--to", target, "--available-now"]
    given += ["--checkpoint", f"{jobs.hadoop.hdfs}/checkpoints/{target}", "--fenced-exit-code", str(code)]
    small = {"spark.executor.instances": "1"}
    kill, reached = Kill(point="offsets committed", batch=0), jobs.reached(first)
    with jobs.submit(first, "cluster", JOB, *given, kill=kill, conf=small) as driver:
        driver.wait_until(reached.exists, timeout=_WAIT_S)
        with jobs.submit(second, "cluster", JOB, *given, conf=small) as other:
            other.wait(timeout=_WAIT_S)
        held.release(reached.parent)
        driver.wait(timeout=_WAIT_S)
    assert "ProducerFenced" in jobs.containers(first)
    assert jobs.attempts(first) == attempts
    assert exactly_once(kafka, target)


def test_the_pages_command_for_yarn_copies_every_record_once(
    hadoop: HadoopCluster, packed: Path, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    (site / "environment.tar.gz").symlink_to(packed / "environment.tar.gz")
    arguments = ["--available-now", "--checkpoint", f"{hadoop.hdfs}/checkpoints/{topics[1]}"]
    shipped = Shipped("YARN", site)
    with shipped.submit("yarn", kafka.bootstrap, topics, *arguments, conf=_SMALL, env=hadoop.environment()) as driver:
        driver.wait(timeout=_WAIT_S)
    assert exactly_once(kafka, topics[1])


def test_the_packed_environment_also_reaches_containers_from_a_driver_outside_of_them(
    hadoop: HadoopCluster, packed: Path, kafka: EmbeddedKafka, site: Path, topics: tuple[str, str]
) -> None:
    for name in ("environment", "environment.tar.gz"):
        (site / name).symlink_to(packed / name)
    checkpoint = ["--checkpoint", f"{hadoop.hdfs}/checkpoints/{topics[1]}"]
    shipped = Shipped("A packed environment", site)
    with shipped.submit("yarn", kafka.bootstrap, topics, *checkpoint, conf=_SMALL, env=hadoop.environment()) as driver:
        driver.wait(timeout=_WAIT_S)
    assert exactly_once(kafka, topics[1])


def await_that(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"not reached: {what}"
        time.sleep(0.1)  # there is no event for what a container writes
