"""Queries whose checkpoint and staged blocks are in S3: Spark opens it with Hadoop's S3A, the package with PyArrow. The
server is a real one; what lies between makes faults.

Rows are counted as a `read_committed` consumer sees them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests import held, s3a
from tests.producing import produce
from tests.reading import read_committed
from tests.s3_proxy import Faults, S3Proxy, s3_proxy
from tests.seaweedfs import KEYS, Bucket, seaweedfs

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).parent / "jobs" / "copy_with_store.py"
RECORDS, BATCH = 4_000, 2_000
DIGITS = 300  # of a value: a task's blocks are too large for its report and are staged
WAIT_S = 240
ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[S3Proxy]:
    with s3_proxy(bucket.endpoint) as between:
        yield between


class Copy:
    """One query. Its checkpoint and staged blocks are in the bucket, in folders with the target's name."""

    def __init__(
        self, kafka: EmbeddedKafka, topic: Callable[..., str], bucket: Bucket, proxy: S3Proxy, folder: Path
    ) -> None:
        self.kafka, self.bucket, self.proxy, self.folder = kafka, bucket, proxy, folder
        self.source, self.target = topic("store-in", partitions=2), topic("store-out", partitions=2)
        self.produced = 0

    def produce(self, count: int = RECORDS) -> None:
        for partition in (0, 1):
            numbers = range(self.produced + partition, self.produced + count, 2)
            values = (b"%0*d" % (DIGITS, number) for number in numbers)
            produce(self.kafka.bootstrap, self.source, values, partition=partition)
        self.produced += count

    def driver(
        self,
        name: str,
        way: str,
        *,
        size: int = BATCH,
        kill: Kill | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> Driver:
        """Start a driver; `kill` is armed in the folder `name`."""
        (self.folder / name).mkdir()
        settings = {
            "spark.ui.enabled": "false",
            "spark.jars": s3a.jars(),
            "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.shuffle.partitions": "2",
            **s3a.settings(self.proxy.endpoint),
            **(conf or {}),
        }
        places = (f"s3a://{self.bucket.name}/{self.target}/{name}" for name in ("checkpoint", "staging"))
        return Driver(
            JOB,
            [self.kafka.bootstrap, self.source, self.target, *places, way, str(size)],
            conf=["--master", "local[2, 2]", *(w for pair in settings.items() for w in ("--conf", "=".join(pair)))],
            env=python_environment()
            | KEYS
            | {"AWS_ENDPOINT_URL": f"http://{self.proxy.endpoint}"}
            | (kill.environment(self.folder / name) if kill else {}),
            log=self.log(name),
        )

    def run(self, name: str, way: str, **given: object) -> None:
        """Run a driver until nothing is left to copy. Raises ToolFailed if the query fails."""
        with self.driver(name, way, **given) as driver:  # type: ignore[arg-type]
            driver.wait(timeout=WAIT_S)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def reached(self, name: str) -> bool:
        return held.reached(self.folder / name)

    @property
    def commits(self) -> list[str]:
        return self.bucket.keys(f"{self.target}/checkpoint/commits/")

    @property
    def staged(self) -> list[str]:
        return self.bucket.keys(f"{self.target}/staging/")

    def requested(self, pattern: str) -> int:
        """How many requests so far fit this pattern of `METHOD path`."""
        return sum(bool(re.search(pattern, request)) for request in self.proxy.requests)

    def written(self) -> list[int]:
        return sorted(int(each.value() or b"") for each in read_committed(self.kafka.bootstrap, self.target))

    def exactly_once(self) -> bool:
        return self.written() == list(range(self.produced))


@pytest.fixture
def copy(
    kafka: EmbeddedKafka, topic: Callable[..., str], bucket: Bucket, proxy: S3Proxy, tmp_path: Path
) -> Copy:
    query = Copy(kafka, topic, bucket, proxy, tmp_path)
    query.produce()
    return query


@pytest.mark.parametrize(
    ("way", "point"), [("sink", "half appended"), ("driver", "offsets committed"), ("executors", "half appended")]
)
def test_a_killed_driver_and_a_lost_checkpoint_leave_every_record_once(copy: Copy, way: str, point: str) -> None:
    with copy.driver("killed", way, kill=Kill(point=point, batch=1)) as driver:
        driver.wait_until(lambda: copy.reached("killed"), timeout=WAIT_S)
        driver.kill()
    assert len(copy.commits) == 1
    copy.run("restarted", way)
    assert copy.exactly_once()
    assert len(copy.commits) == 2
    staged = copy.requested(rf"^(PUT|POST) /bucket/{copy.target}/staging/kafka-eos-staging/[^/]+/\d+-[0-9a-f]+/")
    assert bool(staged) == (way != "executors"), "only a driver that appends needs them"
    copy.bucket.remove(f"{copy.target}/checkpoint")
    copy.produce(3 * BATCH)
    copy.run("continued", way)
    assert copy.exactly_once()
    assert copy.staged == [], "a later batch removes what the killed driver left"
