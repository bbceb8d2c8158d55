"""Queries whose checkpoint and staged blocks are in S3: Spark opens it with Hadoop's S3A, the package with PyArrow. The
server is a real one; what lies between makes faults.

Rows are counted as a `read_committed` consumer sees them.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from urllib.parse import unquote

import pyspark
import pytest

from lab.jars import built_in_connector
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.driver import Driver, Kill, python_environment
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.jars import files
from tests import held, s3a
from tests.producing import produce
from tests.reading import read_committed
from tests.s3_proxy import Faults, S3Proxy, Turn, s3_proxy
from tests.seaweedfs import KEYS, Bucket, seaweedfs

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

JOB = Path(__file__).parent / "jobs" / "copy_with_store.py"
TIMED = JOB.with_name("time_checkpoints.py")
RECORDS, BATCH = 4_000, 2_000
DIGITS = 300  # of a value: a task's blocks are too large for its report and are staged
WAIT_S = 240
BOTH = ("one", "other")
ABORTABLE = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
# A store is given up after seconds, not minutes.
IMPATIENT = {f"spark.hadoop.fs.s3a.{name}": "1" for name in ("attempts.maximum", "retry.limit", "retry.throttle.limit")}
MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with seaweedfs(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def proxy(bucket: Bucket) -> Iterator[S3Proxy]:
    with s3_proxy(bucket.endpoint) as between:
        yield between


def driver_of(
    job: Path,
    arguments: Sequence[str],
    proxy: S3Proxy,
    log: Path,
    *,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> Driver:
    """Start a driver with the settings that the page names."""
    settings = {
        "spark.ui.enabled": "false",
        # Not `spark.jars`, of which each driver would make copies.
        "spark.driver.extraClassPath": ":".join(
            map(str, [*s3a.jars(), *files(built_in_connector(pyspark.__version__))])
        ),
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
        **s3a.settings(proxy.endpoint),
        **(conf or {}),
    }
    return Driver(
        job,
        arguments,
        conf=["--master", "local[2, 2]", *(w for pair in settings.items() for w in ("--conf", "=".join(pair)))],
        env=python_environment() | KEYS | {"AWS_ENDPOINT_URL": f"http://{proxy.endpoint}"} | dict(env or {}),
        log=log,
    )


def await_end(driver: Driver) -> None:
    """Return when it has ended, with whatever exit code."""
    driver.wait_until(lambda: not driver.running, timeout=WAIT_S)


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
        proxy: S3Proxy | None = None,
    ) -> Driver:
        """Start a driver; `kill` is armed in the folder `name`. `proxy`: another one than the others use."""
        (self.folder / name).mkdir()
        places = (f"s3a://{self.bucket.name}/{self.target}/{name}" for name in ("checkpoint", "staging"))
        arguments = [self.kafka.bootstrap, self.source, self.target, *places, way, str(size)]
        armed = kill.environment(self.folder / name) if kill else {}
        return driver_of(JOB, arguments, proxy or self.proxy, self.log(name), conf=conf, env=armed)

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
def copy(kafka: EmbeddedKafka, topic: Callable[..., str], bucket: Bucket, proxy: S3Proxy, tmp_path: Path) -> Copy:
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


SLOW, UNAVAILABLE, CUT = Faults(latency=0.3), Faults(unavailable_every=5), Faults(cut_every=7)


@pytest.mark.parametrize(
    ("way", "faults"),
    [
        pytest.param("sink", SLOW, id="sink, 300 ms"),
        pytest.param("sink", UNAVAILABLE, id="sink, 503"),
        pytest.param("sink", CUT, id="sink, cut connections"),
        pytest.param("driver", SLOW, id="foreachBatch, 300 ms"),
        pytest.param("driver", UNAVAILABLE, id="foreachBatch, 503"),
        pytest.param("driver", CUT, id="foreachBatch, cut connections"),
        pytest.param("executors", UNAVAILABLE, id="executors, 503"),
    ],
)
def test_a_store_that_is_slow_or_fails_now_and_then_only_delays_the_copy(copy: Copy, way: str, faults: Faults) -> None:
    copy.proxy.faults = faults
    copy.run("faulty", way)
    assert copy.exactly_once()
    print(f"{way}, {faults}: {len(copy.proxy.requests)} requests, {dict(copy.proxy.made)}")
    assert faults.latency or sum(copy.proxy.made.values()) >= 10


@pytest.mark.parametrize("faults", [SLOW, UNAVAILABLE], ids=["300 ms", "503"])
@pytest.mark.parametrize(
    ("way", "point"), [("driver", "half appended"), ("driver", "ended"), ("executors", "offsets committed")]
)
def test_foreach_batch_is_killed_while_the_store_is_slow_or_fails_now_and_then(
    copy: Copy, way: str, point: str, faults: Faults
) -> None:
    copy.proxy.faults = faults
    with copy.driver("killed", way, kill=Kill(point=point, batch=1)) as driver:
        driver.wait_until(lambda: copy.reached("killed"), timeout=WAIT_S)
        driver.kill()
    assert len(copy.commits) == 1
    copy.run("restarted", way)
    assert copy.exactly_once()
    assert len(copy.commits) == 2
    assert faults.latency or copy.proxy.made


@pytest.mark.parametrize(
    ("way", "requests", "said"),
    [
        ("sink", "GET .*/checkpoint/offsets/1", "cannot read.*SLOW_DOWN.*start the query again.*Nothing was committed"),
        ("driver", "(PUT|POST) .*/1-[0-9a-f]{32}/0-", "StagingLost.*cannot write the staging file.*SLOW_DOWN"),
        ("driver", "PUT .*/checkpoint/commits/1", "SlowDown|503"),
    ],
    ids=["plan", "blocks", "commit"],
)
def test_a_store_that_no_longer_answers_ends_the_query_and_a_restart_goes_on(
    copy: Copy, way: str, requests: str, said: str
) -> None:
    copy.proxy.faults = Faults(to=requests, unavailable_every=1)
    with pytest.raises(ToolFailed) as raised:
        copy.run("fails", way, conf=IMPATIENT)
    print(raised.value)
    assert re.search(said, str(raised.value), re.DOTALL)
    copy.proxy.faults = Faults()
    copy.run("restarted", way)
    assert copy.exactly_once()


def test_outdated_lists_end_a_start_before_anything_is_written_or_change_nothing(copy: Copy) -> None:
    with copy.driver("killed", "sink", kill=Kill(point="ended", batch=1)) as driver:
        driver.wait_until(lambda: copy.reached("killed"), timeout=WAIT_S)
        driver.kill()
    copy.produce()
    for number, unlisted in enumerate(["/offsets/1$", "/(offsets|commits)/"]):
        copy.proxy.faults = Faults(unlisted=unlisted)
        with pytest.raises(ToolFailed) as raised:
            copy.run(f"outdated-{number}", "sink")
        print(raised.value)
        assert copy.proxy.made["left out"]
        assert copy.written() == list(range(RECORDS))
    copy.proxy.faults = Faults()
    copy.run("restarted", "sink")
    assert copy.exactly_once()


@pytest.fixture
def replaced(copy: Copy, bucket: Bucket) -> Iterator[tuple[S3Proxy, S3Proxy]]:
    """Proxies for two drivers that plan batch 1 at the same moment: neither finds a plan, and the second one's replaces
    the first one's.
    """
    both, first = threading.Event(), threading.Event()
    with s3_proxy(bucket.endpoint) as one, s3_proxy(bucket.endpoint) as other:
        plan, there = rf"^PUT /bucket/{copy.target}/checkpoint/offsets/1(\?|$)", threading.Event()
        one.faults = Faults(to=plan, turn=Turn(there=there, awaits=both, over=first))
        other.faults = Faults(to=plan, turn=Turn(there=both, awaits=first, over=threading.Event()))
        yield one, other


@pytest.mark.parametrize("manager", ["", ABORTABLE], ids=["rename", "abortable"])
def test_of_two_drivers_that_write_the_same_plan_at_the_same_moment_one_writes_the_batch(
    copy: Copy, replaced: tuple[S3Proxy, S3Proxy], manager: str
) -> None:
    """Neither manager creates a file only if there is none: both drivers take the plan for theirs."""
    conf = {MANAGER: manager} if manager else {}
    copy.run("before", "sink", size=RECORDS, conf=conf)
    copy.produce()
    with (
        copy.driver("one", "sink", conf=conf, proxy=replaced[0]) as one,
        copy.driver("other", "sink", conf=conf, proxy=replaced[1]) as other,
    ):
        await_end(one)
        await_end(other)
    for proxy in replaced:
        assert proxy.faults.turn is not None and proxy.faults.turn.over.is_set()
    batches = [re.findall("batch 1 of query .* committed: records", copy.log(name).read_text()) for name in BOTH]
    assert sum(map(len, batches)) == 1
    copy.run("after", "sink", conf=conf)
    assert copy.exactly_once()


def test_the_sink_refuses_a_batch_whose_plan_was_replaced_before_its_tasks_ran(
    copy: Copy, replaced: tuple[S3Proxy, S3Proxy]
) -> None:
    """It would commit 1,000 records with the offsets of 1,500."""
    copy.run("before", "sink", size=RECORDS)
    copy.produce()
    begun = Kill(point="begun", batch=1)
    with (
        copy.driver("one", "sink", size=1_000, proxy=replaced[0]) as one,
        copy.driver("other", "sink", size=1_500, proxy=replaced[1], kill=begun) as other,
    ):
        other.wait_until(lambda: copy.reached("other"), timeout=WAIT_S)
        with pytest.raises(ToolFailed, match="CheckpointUnusable.*another driver writes.*Nothing was committed"):
            one.wait(timeout=WAIT_S)
        held.release(copy.folder / "other")
        other.wait(timeout=WAIT_S)
    assert copy.exactly_once()


def test_a_driver_whose_plan_was_replaced_writes_what_it_planned_and_the_other_plan_is_refused(
    copy: Copy, replaced: tuple[S3Proxy, S3Proxy]
) -> None:
    """The checkpoint has a plan that nobody wrote; a new one goes on from Kafka."""
    copy.run("before", "driver", size=RECORDS)
    copy.produce()
    ended, begun = Kill(point="ended", batch=1), Kill(point="begun", batch=1)
    with (
        copy.driver("one", "driver", size=1_000, proxy=replaced[0], kill=ended) as one,
        copy.driver("other", "driver", size=1_500, proxy=replaced[1], kill=begun) as other,
    ):
        other.wait_until(lambda: copy.reached("other"), timeout=WAIT_S)
        one.wait_until(lambda: copy.reached("one"), timeout=WAIT_S)
        one.kill()
        held.release(copy.folder / "other")
        with pytest.raises(ToolFailed, match="LedgerRefused"):
            other.wait(timeout=WAIT_S)
    once = copy.written()
    assert len(set(once)) == len(once) == RECORDS + 1_000
    with pytest.raises(ToolFailed, match="LedgerRefused"):
        copy.run("after", "driver")
    copy.bucket.remove(f"{copy.target}/checkpoint")
    copy.run("continued", "driver")
    assert copy.exactly_once()


@pytest.mark.timeout(1800)
def test_a_batch_asks_s3_hardly_more_often_than_one_of_the_built_in_connector(
    kafka: EmbeddedKafka, topic: Callable[..., str], bucket: Bucket, proxy: S3Proxy, tmp_path: Path
) -> None:
    """Each request to the bucket `far` takes 30 ms longer."""
    size, batches, runs = 1_000, 5, 2
    source, target = topic("timed-in", partitions=2), topic("timed-out", partitions=2)
    for partition in (0, 1):
        produce(kafka.bootstrap, source, (b"%0100d" % each for each in range(size * batches // 2)), partition=partition)
    Bucket(bucket.endpoint, "far").create()
    proxy.faults = Faults(to=r"^\S+ /far[/?]", latency=0.03)
    places = {
        "local disk": tmp_path.as_uri(),
        "S3": f"s3a://{bucket.name}/timed",
        "S3, 30 ms": "s3a://far/timed",
        "S3, 30 ms, abortable": f"s3a://far/aborted={ABORTABLE}",
    }
    given = [kafka.bootstrap, source, target, tmp_path / "figures", size, batches, runs]
    with driver_of(
        TIMED, [*map(str, given), *("=".join(place) for place in places.items())], proxy, tmp_path / "timed.log"
    ) as driver:
        driver.wait(timeout=6 * WAIT_S)
    measured = json.loads((tmp_path / "figures").read_text())
    print(*(f"{side}: {median(ms):.0f} ({min(ms):.0f}-{max(ms):.0f}) ms" for side, ms in measured.items()), sep="\n")
    assert len(read_committed(kafka.bootstrap, target)) == size * batches * runs * len(measured)
    for folder in ("timed", "aborted"):
        ours, sink, built_in = (
            sum(" /far" in each and f"{folder}/{way}-" in unquote(each) for each in proxy.requests) / (batches * runs)
            for way in ("foreachBatch", "sink", "built-in")
        )
        print(f"{folder}: requests for a batch, with the start's: {ours:.0f}, sink {sink:.0f}, built-in {built_in:.0f}")
        assert ours < 1.1 * built_in
        assert sink < 1.3 * built_in
