"""The files of conf/kubernetes as they run: image, Job, the pods of driver and executors, and their rights.

Spark's own client talks to an API server, whose pods are processes in namespaces of this machine (tests/kubernetes).
That is not Kubernetes: see docs/deploying.md. Needs root, Debian's apt-get, and a Python 3.12 for the image.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from spark_kafka_eos.testing.driver import Kill, spark_submit
from spark_kafka_eos.testing.redone import redone
from tests import held
from tests.conftest import SecuredKafka
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.containers import Container
from tests.kubernetes.image import Image, build
from tests.kubernetes.kubectl import apply, kubectl
from tests.kubernetes.pod_security import violations
from tests.kubernetes.resources import KINDS, Resource, owners
from tests.kubernetes.rights import Action
from tests.pages import ROOT
from tests.producing import produce
from tests.reading import read_committed
from tests.shipped import PAGE

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(1200)]

CONF = ROOT / "conf" / "kubernetes"
JOB = "conf/kubernetes/job.yaml"
NAME = "registry.example.com/orders-copy:1"
RECORDS, BATCH = 4_000, 2_000
_WAIT_S = 400
Topics = Callable[[str, str], tuple[str, str]]
# What an image's owner can put there; the tests' drivers are too short-lived for the optimising compiler.
_SMALL = """\
spark.ui.enabled false
spark.sql.shuffle.partitions 2
spark.driver.defaultJavaOptions -XX:TieredStopAtLevel=1
spark.executor.defaultJavaOptions -XX:TieredStopAtLevel=1
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """What the Dockerfile builds of this checkout."""
    context, folder = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("images")
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--wheel-dir", context / "dist", ROOT], check=True, timeout=120)
    for name in ("conf", "jobs"):
        (context / name).symlink_to(ROOT / name)
    yield build((CONF / "Dockerfile").read_text(), context, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def cluster(image: Image, secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With what the page's commands create before the Job."""
    (image.root / "opt/spark/conf").mkdir(exist_ok=True)
    (image.root / "opt/spark/conf/spark-defaults.conf").write_text(_SMALL)
    files = tmp_path_factory.mktemp("files")
    (files / "conf").symlink_to(ROOT / "conf")
    shutil.copy(secured.certificates.ca, files / "ca.pem")
    (files / "client.properties").write_text(
        secured.properties().replace(str(secured.certificates.ca), "/etc/kafka/ca.pem")
    )
    with Cluster(tmp_path_factory.mktemp("kubernetes") / "cluster", {NAME: image}) as cluster:
        for words in commands("kubectl"):
            kubectl(cluster.resources, without_job(words), files)
        yield cluster


def without_job(words: list[str]) -> list[str]:
    """A command without the Job: each test applies its own."""
    at = words.index(JOB) if JOB in words else len(words) + 1
    return words[: at - 1] + words[at + 1 :]


def commands(program: str) -> list[list[str]]:
    """The words after `program` of the page's commands for Kubernetes."""
    [section] = re.findall(r"^### Kubernetes\n(.*?)^##", PAGE, re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"{program} ")]


@pytest.fixture
def topics(secured: SecuredKafka) -> Topics:
    """Makes a source with records in two partitions, and an empty target."""

    def make(source: str, target: str) -> tuple[str, str]:
        for name in (source, target):
            secured.kafka.create_topic(name, partitions=2)
        for partition in (0, 1):
            numbers = range(partition, RECORDS, 2)
            produce(secured.kafka.bootstrap, source, (b"%d" % number for number in numbers), partition=partition)
        return source, target

    return make


def copied(secured: SecuredKafka, target: str) -> list[int]:
    return sorted(int(message.value() or b"") for message in read_committed(secured.kafka.bootstrap, target))


ALL = list(range(RECORDS))


class CopyJob:
    """A Job made of job.yaml for other topics, under a name of its own, which ends where its input ends. `arguments`
    are more for copy_topic.py, `conf` more for spark-submit; `kill` is armed in the driver or in the executors.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        topics: tuple[str, str],
        *arguments: str,
        conf: Sequence[str] = (),
        kill: Kill | None = None,
        in_executors: bool = False,
        backoff_limit: int | None = None,
        ends: bool = True,
    ) -> None:
        self.cluster, self.name = cluster, name
        self.folder = cluster.kubelet.claimed("checkpoints") / f"{name}-failpoint"
        self.folder.mkdir()
        job: Resource = yaml.safe_load((CONF / "job.yaml").read_text())
        job["metadata"]["name"] = name
        if backoff_limit is not None:
            job["spec"]["backoffLimit"] = backoff_limit
        [container] = job["spec"]["template"]["spec"]["containers"]
        words = container["args"]
        at = next(number for number, word in enumerate(words) if word.endswith("copy_topic.py"))
        source, target = topics
        changed = {"--from": source, "--to": target, "--checkpoint": f"/checkpoints/{target}"}
        for option, value in changed.items():
            words[words.index(option) + 1] = value
        settings = list(conf)
        armed = {} if kill is None else kill.environment(Path("/checkpoints", self.folder.name))
        if in_executors:
            settings += [f"spark.executorEnv.{variable}={value}" for variable, value in armed.items()]
        else:
            container["env"] += [{"name": variable, "value": value} for variable, value in armed.items()]
        words[at:at] = [word for setting in settings for word in ("--conf", setting)]
        words += [*(["--available-now"] if ends else []), "--max-offsets-per-trigger", str(BATCH), *arguments]
        apply(cluster.resources, job)

    @property
    def drivers(self) -> list[Resource]:
        """The Job's pods that there are, the oldest first."""
        return self.cluster.pods(f"batch.kubernetes.io/job-name={self.name}")

    @property
    def condition(self) -> str:
        """Complete, or Failed with its reason; nothing while the Job runs."""
        [told] = self.cluster.resources.get("jobs", self.name).get("status", {}).get("conditions", [{"type": ""}])
        return f"{told['type']} {told.get('reason', '')}".strip()

    @property
    def log(self) -> str:
        return "\n".join(self.cluster.kubelet.log(pod["metadata"]["name"]) for pod in self.drivers)

    def await_the_kill(self) -> int:
        """Wait until a process is held at the failpoint; its number in its pod."""
        await_that(lambda: held.reached(self.folder) or bool(self.condition), "a process is held at the failpoint")
        assert held.reached(self.folder), self.log[-3000:]
        return int((self.folder / "reached").read_text())

    def await_its_end(self, wait_s: float = _WAIT_S) -> list[int]:
        """Wait until the Job is complete or failed; its drivers' exit codes."""
        self.cluster.resources.wait_until(lambda: bool(self.condition), f"{self.name} ends", wait_s)
        print(f"{self.name}: {self.condition}, exit codes {[exit_code(pod) for pod in self.drivers]}")
        return [exit_code(pod) for pod in self.drivers]


def exit_code(pod: Resource) -> int:
    [status] = pod["status"]["containerStatuses"]
    return int(status["state"]["terminated"]["exitCode"])


def executors(cluster: Cluster) -> list[Resource]:
    """The executors' pods that run."""
    return [pod for pod in cluster.pods("spark-role=executor") if pod["status"]["phase"] == "Running"]


def names(cluster: Cluster, plural: str) -> set[str]:
    return {each["metadata"]["name"] for each in cluster.resources.listed(plural)}


def await_that(condition: Callable[[], bool], what: str, wait_s: float = _WAIT_S) -> None:
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"not reached: {what}"
        time.sleep(0.2)  # there is no event for what a pod does


def requests_of(cluster: Cluster, account: str) -> set[Action]:
    return {request.action for request in cluster.api.requests if request.by == account}


@pytest.fixture(autouse=True)
def each_request_was_allowed_and_valid(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Spark asks of the API needs no right that rbac.yaml does not give, nor has it fields that it lacks."""
    yield
    if "cluster" in request.fixturenames:
        api = request.getfixturevalue("cluster").api
        assert [each for each in api.requests if not each.allowed] == []
        assert [each for each in api.refused if "not found" not in each] == []


def test_the_image_has_the_versions_of_its_lock_and_runs_as_an_ordinary_user(image: Image, tmp_path: Path) -> None:
    code = (
        "import importlib.metadata as m, os, sys; "
        "print(os.getuid(), os.getgid(), sys.version_info[:2], "
        "*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"
    )
    inside = Container(
        root=image.root,
        command=[*image.entrypoint, image.environment["PYSPARK_PYTHON"], "-I", "-c", code],
        environment=image.environment,
        folder=image.folder,
        user=int(image.user),
        group=185,
        scratch=tmp_path / "scratch",
        read_only=True,
        restricted=True,
    )
    found = subprocess.run(inside.arguments(), check=True, capture_output=True, text=True, timeout=60).stdout
    assert found.startswith("185 185 (3, 12) ")
    installed = {each.lower().replace("_", "-") for each in found.split()}
    lines = re.findall(r"^(\w\S*==[^\\\n]+)", (CONF / "requirements.txt").read_text(), re.MULTILINE)
    of_image = {"python_full_version": "3.12.0", "python_version": "3.12"}
    locked = [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate(of_image)]
    assert len(locked) >= 5
    assert {f"{each.name}{each.specifier}" for each in locked} <= installed
    assert any(each.startswith("spark-kafka-eos==") for each in installed)


def test_the_job_runs_as_it_is_and_its_executors_are_pods_of_the_template(
    cluster: Cluster, secured: SecuredKafka, topics: Topics
) -> None:
    _, target = topics("orders", "orders-copy")
    before = names(cluster, "configmaps")
    kubectl(cluster.resources, ["apply", "-f", JOB], ROOT)
    await_that(lambda: copied(secured, target) == ALL, "every record is copied")
    [driver] = cluster.pods("batch.kubernetes.io/job-name=orders-copy")
    made = [pod for pod in executors(cluster) if driver["metadata"]["uid"] in owners(pod)]
    assert len(made) == 2
    [template] = yaml.safe_load_all((CONF / "pod-template.yaml").read_text())
    for pod in made:
        assert holds(pod["spec"], template["spec"])
        assert "serviceaccount" not in cluster.kubelet.log(pod["metadata"]["name"])
        variables = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
        assert variables["_SPARK_AUTH_SECRET"], "docs/security.md says who can read it"
    assert [violations(pod["spec"]) for pod in (driver, *made)] == [[], [], []]
    told = [
        event.resource for plural in KINDS if plural != "secrets" for event in cluster.resources.events(plural, 0, 0)[0]
    ]
    assert secured.allowed[1] not in json.dumps(told), "Kafka's password is in its secret only"

    cluster.resources.remove("jobs", "orders-copy")
    own = {pod["metadata"]["name"] for pod in (driver, *made)}
    cluster.resources.wait_until(lambda: not own & names(cluster, "pods"), "driver and executors are gone", _WAIT_S)
    [*_, last] = [
        event.resource
        for event in cluster.resources.events("pods", 0, 0)[0]
        if event.key.name == driver["metadata"]["name"]
    ]
    assert exit_code(last) == 143, "it stopped its query in the grace period"
    assert names(cluster, "configmaps") == before, "Spark has deleted its own"
    assert copied(secured, target) == ALL
    print(f"the driver's requests: {sorted(map(str, requests_of(cluster, 'spark')))}")


@pytest.mark.parametrize(("way", "point"), [("driver", "half appended"), ("executors", "offsets committed")])
def test_the_job_starts_a_killed_driver_again_and_nothing_is_lost_or_repeated(
    cluster: Cluster, secured: SecuredKafka, topics: Topics, way: str, point: str
) -> None:
    name = f"killed-{way}"
    job = CopyJob(cluster, name, topics(name, f"{name}-copy"), "--append-mode", way, kill=Kill(point=point, batch=1))
    pod = cluster.kubelet.pod_of(job.await_the_kill())
    assert [pod] == [driver["metadata"]["name"] for driver in job.drivers]
    cluster.kubelet.signal(pod, signal.SIGKILL)
    assert job.await_its_end() == [137, 0]
    assert job.condition == "Complete"
    assert copied(secured, f"{name}-copy") == ALL
    cluster.resources.wait_until(lambda: executors(cluster) == [], "no executor is left, not even the first driver's")


def test_spark_asks_for_another_executor_when_one_is_killed_and_nothing_is_lost_or_repeated(
    cluster: Cluster, secured: SecuredKafka, topics: Topics
) -> None:
    name = "executor"
    job = CopyJob(
        cluster,
        name,
        topics(name, f"{name}-copy"),
        *("--append-mode", "executors"),
        kill=Kill(point="half appended", batch=1),
        in_executors=True,
    )
    pod = cluster.kubelet.pod_of(job.await_the_kill())
    assert pod in [executor["metadata"]["name"] for executor in executors(cluster)]
    cluster.kubelet.signal(pod, signal.SIGKILL)
    assert job.await_its_end() == [0]
    [driver] = job.drivers
    added = [event for event in cluster.resources.events("pods", 0, 0)[0] if event.type == "ADDED"]
    asked = [event.key.name for event in added if driver["metadata"]["uid"] in owners(event.resource)]
    print(f"{name}: killed {pod}, of {asked}")
    assert len(asked) == 3
    assert list(redone(job.log.splitlines())) == [1]
    assert copied(secured, f"{name}-copy") == ALL


def test_a_fenced_driver_fails_its_job_and_is_not_started_again(
    cluster: Cluster, secured: SecuredKafka, topics: Topics
) -> None:
    """Two Jobs of one query: the first one is held, while the second one takes over and ends."""
    between = topics("fenced", "fenced-copy")
    late = CopyJob(cluster, "fenced", between, kill=Kill(point="offsets committed", batch=0))
    late.await_the_kill()
    taking_over = CopyJob(cluster, "takes-over", between)
    assert taking_over.await_its_end() == [0]
    held.release(late.folder)
    assert late.await_its_end() == [90]
    assert late.condition == "Failed PodFailurePolicy"
    assert "ProducerFenced" in late.log
    assert copied(secured, "fenced-copy") == ALL


def test_a_wrong_option_fails_the_job_and_no_driver_is_started_again(cluster: Cluster) -> None:
    job = CopyJob(cluster, "wrong", ("orders", "orders-copy"), "--append-mode", "nobody")
    assert job.await_its_end() == [2]
    assert job.condition == "Failed PodFailurePolicy"


def test_a_driver_that_fails_otherwise_is_started_again_as_often_as_backofflimit_says(cluster: Cluster) -> None:
    broken = ["--checkpoint", "/etc/kafka/read-only"]
    job = CopyJob(cluster, "fails", ("orders", "orders-copy"), *broken, backoff_limit=1)
    assert job.await_its_end() == [1, 1]
    assert job.condition == "Failed BackoffLimitExceeded"


def test_an_evicted_driver_is_started_again_and_does_not_count_as_a_failure(
    cluster: Cluster, secured: SecuredKafka, topics: Topics
) -> None:
    source, target = topics("evicted", "evicted-copy")
    job = CopyJob(cluster, "evicted", (source, target), backoff_limit=0, ends=False)
    await_that(lambda: copied(secured, target) == ALL, "every record is copied")
    [first] = job.drivers
    cluster.evict(first["metadata"]["name"])
    more = range(RECORDS, RECORDS + 100)
    produce(secured.kafka.bootstrap, source, (b"%d" % number for number in more))
    await_that(lambda: copied(secured, target) == [*ALL, *more], "the next driver goes on")
    assert first["metadata"]["uid"] not in [driver["metadata"]["uid"] for driver in job.drivers]
    assert job.condition == ""
    cluster.resources.remove("jobs", "evicted")
    cluster.resources.wait_until(lambda: job.drivers == [], "the Job's pods are gone", _WAIT_S)


def test_the_pages_spark_submit_starts_the_driver_in_a_pod(
    cluster: Cluster, secured: SecuredKafka, topics: Topics, site: Path
) -> None:
    _, target = topics("submitted", "submitted-copy")
    [words] = commands("spark-submit")
    text = shlex.join(words).replace("https://kubernetes.example.com:6443", cluster.url)
    text = text.replace("=conf/", f"={ROOT}/conf/").replace("orders-copy --", "submitted-copy --")
    text = text.replace("--from orders --to orders-copy", f"--from submitted --to {target}")
    text = text.replace("/checkpoints/orders-copy", f"/checkpoints/{target}")
    first, *rest = shlex.split(text)
    here = ["--conf", f"spark.kubernetes.namespace={cluster.resources.namespace}"]
    done = subprocess.run(
        [spark_submit(), *here, first, *rest, "--available-now"],
        check=False,
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig), "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    [driver] = cluster.pods("spark-role=driver")
    log = cluster.kubelet.log(driver["metadata"]["name"])
    assert done.returncode == 0, done.stderr[-3000:]  # also if the driver fails
    assert exit_code(driver) == 0, log[-3000:]
    assert copied(secured, target) == ALL


def holds(given: Any, asked: Any) -> bool:
    """Whether all that is asked for is there: each field, and of a list each item."""
    if isinstance(asked, dict):
        return isinstance(given, dict) and all(name in given and holds(given[name], asked[name]) for name in asked)
    if isinstance(asked, list):
        return isinstance(given, list) and all(any(holds(one, each) for one in given) for each in asked)
    return bool(given == asked)
