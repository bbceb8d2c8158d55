"""The faults of the matrix, one column each, and the outcome that each must have in every state.

A driver is held in the state, the fault happens, and the driver is let go, or killed and followed by another one. Then
the output is checked: every source record once, nothing aborted visible, no transaction open.
"""

from __future__ import annotations

import resource
import shutil
from collections import Counter
from collections.abc import Callable
from threading import Event

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Fault
from tests.faults.driver import PARTITIONS
from tests.faults.scene import STEP, Outcome, Scene
from tests.faults.states import (
    BATCH,
    STATES,
    State,
    by_author,
    invisible,
    is_old,
    of_victim,
    reach,
    release_markers,
    resume,
    succeed,
)

REDONE, SKIPPED, RIDES, FENCED, REFUSED = (
    Outcome.REDONE,
    Outcome.SKIPPED,
    Outcome.RIDES_THROUGH,
    Outcome.FENCED,
    Outcome.REFUSED,
)

TIMEOUT_MS = 3_000  # enough to reach any state

# By column, in the order of the states. Where the source's cluster is makes no difference.
EXPECTED: dict[str, list[Outcome]] = {
    "driver SIGKILL": [*[REDONE] * 7, SKIPPED, SKIPPED, SKIPPED, REDONE],
    "connection cut": [RIDES] * 11,
    "response lost": [RIDES] * 11,
    "zombie driver": [REFUSED, *[FENCED] * 10],
    "checkpoint lost": [*[REDONE] * 7, SKIPPED, SKIPPED, SKIPPED, REDONE],
    "checkpoint older": [*[REDONE] * 7, *[REFUSED] * 4],
    "topic deleted": [REFUSED] * 11,
    "partitions added": [RIDES] * 11,
    "broker SIGKILL": [RIDES] * 11,
    "broker SIGSTOP": [RIDES, RIDES, RIDES, *[REDONE] * 4, *[RIDES] * 4],
    "disk full": [RIDES] * 11,
    "source broker SIGKILL": [RIDES] * 11,
    "source broker SIGSTOP": [RIDES] * 11,
}

DIFFERENT = {
    # In TV1 the transaction is open as soon as a partition is added to it.
    ("TV1", "broker SIGSTOP", "3 partitions added"): REDONE,
}

Play = Callable[[Scene, State], Outcome]
COLUMNS: dict[str, Play] = {}  # for any scene
OF_SOURCE: dict[str, Play] = {}  # for one whose source is on another cluster


def column(name: str, among: dict[str, Play] = COLUMNS) -> Callable[[Play], Play]:
    def register(play: Play) -> Play:
        among[name] = play
        return play

    return register


def protocol(scene: Scene) -> str:
    """Of the sink's cluster."""
    return "TV1" if is_old(scene) else "TV2"


def expected(scene: Scene, fault: str, state: str) -> Outcome:
    """The one outcome of the batch at hand."""
    usual = EXPECTED[fault][list(STATES).index(state)]
    return DIFFERENT.get((protocol(scene), fault, state), usual)


# -- the columns: each reaches the state, does the harm, and tells the outcome of the batch at hand


@column("driver SIGKILL")
def driver_killed(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    scene.kill("victim")
    succeed(scene)
    assert scene.report("successor", state.batch)["outcome"] == ("skipped" if state.committed else "committed")
    scene.check(aborted=invisible(state))
    return by_author(scene, state)


@column("connection cut")
def connections_cut(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    scene.proxy.cut()
    resume(scene, state)
    scene.ended("victim")
    scene.check(aborted=0)
    return of_victim(scene, state)


@column("response lost")
def response_lost(scene: Scene, state: State) -> Outcome:
    """The answer to the request that led to the state is lost after it was applied; where it was lost already, the
    answer to the next attempt is."""
    lost = lose_response(scene, state)
    scene.ended("victim")
    lost.wait(timeout=0)
    scene.check(aborted=0)
    return of_victim(scene, state)


@column("zombie driver")
def zombie_comes_back(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    succeed(scene)
    resume(scene, state)
    scene.ended("victim")
    scene.check(aborted=invisible(state))
    last = scene.last("victim")
    assert last.get("error") in ("ProducerFenced", "LedgerRefused"), last
    assert last["committed"] == ("unknown" if state.point == "offsets committed@1" else "nothing"), last
    return FENCED if last["error"] == "ProducerFenced" else REFUSED


@column("checkpoint lost")
def checkpoint_lost(scene: Scene, state: State) -> Outcome:
    """The query is started again, with startingOffsets=committed. It waits for offsets that are in an open transaction,
    until the coordinator gives that up."""
    if state.point == "offsets committed@1" and not state.committed:
        scene.options["kafka.transaction.timeout.ms"] = TIMEOUT_MS
    reach(scene, state)
    scene.kill("victim")
    shutil.rmtree(scene.folder / "checkpoint")
    succeed(scene, from_committed=True, numbered_from=100)
    scene.check(aborted=invisible(state), new_query=True)
    return by_author(scene, state)


@column("checkpoint older")
def checkpoint_restored(scene: Scene, state: State) -> Outcome:
    """Only batch 0 is in the copy, and by now the source has more, so that batch 1 is planned again and larger."""
    reach(scene, state)
    scene.kill("victim")
    for number in (1, 2):
        for log in ("offsets", "commits"):
            (scene.folder / "checkpoint" / log / str(number)).unlink(missing_ok=True)
    succeed(scene, step=2 * STEP)
    refused = scene.last("successor").get("error")
    if refused is not None:
        said = scene.last("successor")["text"]
        assert refused == "LedgerRefused" and "startingOffsets=committed" in said, said
        shutil.rmtree(scene.folder / "checkpoint")
        scene.run("adviser", from_committed=True, numbered_from=100)
    scene.check(aborted=invisible(state), new_query=refused is not None)
    return REDONE if refused is None else REFUSED


@column("topic deleted")
def topic_deleted(scene: Scene, state: State) -> Outcome:
    """Its records go with it, and the driver stops with an error that names it. On a topic of the same name the query
    goes on where the ledger says: what was committed is not written again, and nothing is torn. If the batch was
    committed and lost its records at once, the next start is refused."""
    reach(scene, state)
    if state.point == "ended@1":
        scene.await_ended()
    scene.kafka.delete_topic(scene.target)
    resume(scene, state)
    scene.ended("victim")
    told = scene.last("victim")
    assert told.get("error") in ("UnknownTopic", "OutputLost"), told
    assert scene.target in told["text"], told
    scene.kafka.create_topic(scene.target, PARTITIONS)
    succeed(scene)
    if told["error"] == "OutputLost":
        assert scene.last("successor").get("error") == "LedgerRefused", scene.last("successor")
        assert scene.records("read_committed") == []
        return REFUSED
    scene.await_stable()
    assert "error" not in scene.last("successor"), scene.last("successor")
    written = Counter(copy.offset // STEP for copy in scene.records("read_committed"))
    assert set(written.values()) <= {BATCH}, f"a part of a batch: {written}"
    assert sorted(written) in ([1, 2], [2]), f"not what follows the last commit: {written}"
    return REFUSED


@column("partitions added")
def partitions_added(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    add_partitions(scene.kafka, scene.target)
    resume(scene, state)
    scene.ended("victim")
    scene.check(aborted=0)
    return of_victim(scene, state)


CHEAP = tuple(COLUMNS)


@column("broker SIGKILL")
def broker_killed(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    scene.kafka.kill()
    release_markers(scene)
    scene.kafka.start()
    resume(scene, state)
    scene.ended("victim")
    scene.check(aborted=0)
    return of_victim(scene, state)


@column("broker SIGSTOP")
def broker_paused(scene: Scene, state: State) -> Outcome:
    """For longer than the transaction may stay open: what was appended is aborted, and the batch written again. By the
    driver itself, if the coordinator lets it; if it fences it, as TV1 always does, by the next one."""
    scene.options["kafka.transaction.timeout.ms"] = TIMEOUT_MS
    reach(scene, state)
    scene.kafka.pause()
    Event().wait(TIMEOUT_MS / 1000)
    scene.kafka.resume()
    release_markers(scene)
    scene.await_ended()
    resume(scene, state)
    scene.ended("victim")
    told = scene.last("victim")
    if "error" in told:
        assert told["error"] == "ProducerFenced", told
        succeed(scene)
        scene.check(aborted=invisible(state))
        return by_author(scene, state)
    scene.check(aborted=invisible(state) if scene.report("victim", state.batch)["redone"] else 0)
    return of_victim(scene, state)


@column("disk full")
def disk_full(scene: Scene, state: State) -> Outcome:
    reach(scene, state)
    halt_for_a_full_disk(scene.kafka)
    release_markers(scene)
    scene.kafka.start()
    resume(scene, state)
    scene.ended("victim")
    scene.check(aborted=0)
    return of_victim(scene, state)


@column("source broker SIGKILL", OF_SOURCE)
def source_killed(scene: Scene, state: State) -> Outcome:
    origin = origin_of(scene)
    return without_source(scene, state, origin.kill, origin.start)


@column("source broker SIGSTOP", OF_SOURCE)
def source_paused(scene: Scene, state: State) -> Outcome:
    origin = origin_of(scene)
    return without_source(scene, state, origin.pause, origin.resume)


# -- how it is done


def origin_of(scene: Scene) -> EmbeddedKafka:
    assert scene.origin is not None
    return scene.origin


def without_source(scene: Scene, state: State, leave: Callable[[], None], come_back: Callable[[], None]) -> Outcome:
    """The batch at hand, which is read, is committed while the source is away. The next one waits for it."""
    reach(scene, state)
    leave()
    try:
        resume(scene, state)
        scene.settled("victim", state.batch)
    finally:
        come_back()
    scene.ended("victim")
    scene.check(aborted=0)
    return of_victim(scene, state)


def lose_response(scene: Scene, state: State) -> Fault:
    """Start the victim and lose the answer that belongs to the state."""
    add, newer = scene.proxy.add, not is_old(scene)
    if state.point == "half appended@1":
        reach(scene, state)
        lost = add("Produce@victim:cut-response")
        scene.release("victim")
        return lost
    if state.end:
        reach(scene, state)
        lost = add("EndTxn@victim:cut-response")
        resume(scene, state)
        return lost
    # Of the source on another cluster no offsets go to a group: the ledger's are the only ones.
    offsets = 2 if scene.origin is None else 1
    rule = {
        "begun@1": "FindCoordinator@victim:cut-response",
        "initialised@1": "InitProducerId@victim:cut-response",
        "partitions added@1": f"{'Produce' if newer else 'AddPartitionsToTxn'}@victim:cut-response",
        "all appended@1": "Produce@victim:cut-response",
        "offsets committed@1": f"TxnOffsetCommit@victim:{offsets}:cut-response",
        "ended@1": "EndTxn@victim:cut-response",
        "begun@2": f"{'Produce' if newer else 'InitProducerId'}@victim:2:cut-response",
    }[state.point]
    lost = add(rule)
    scene.start("victim")
    return lost


def add_partitions(kafka: EmbeddedKafka, topic: str) -> None:
    """Two more."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result()


def halt_for_a_full_disk(kafka: EmbeddedKafka) -> None:
    """A limit on the size of the broker's files: as with a full disk its writes fail, and it halts."""
    resource.prlimit(kafka.pid(), resource.RLIMIT_FSIZE, (1, 1))
    fill_up(kafka)
    with pytest.raises(ToolFailed, match="exited with code"):
        kafka.wait()


def fill_up(kafka: EmbeddedKafka) -> None:
    """Send a record that finds no room."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "message.timeout.ms": 2_000, "log_level": 0})
    producer.produce("source-of-trouble", b"one too many")
    producer.flush(5)
