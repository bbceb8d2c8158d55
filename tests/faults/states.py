"""The states of a transaction in which a driver meets a fault: how each is reached, and left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.faults.driver import PARTITIONS
from tests.faults.scene import STEP, Outcome, Scene


@dataclass(frozen=True, kw_only=True)
class State:
    """Where the victim is held: at a failpoint, or, from there on, waiting for the answer to its EndTxn.

    `appended` records of the batch at hand are in the log, committed or not (yet).
    """

    point: str
    appended: int = 0
    end: Literal["", "lost", "prepared", "completed"] = ""
    committed: bool = False
    batch: int = 1


BATCH = STEP * PARTITIONS  # records

STATES = {
    "1 coordinator found": State(point="begun@1"),
    "2 initialised": State(point="initialised@1"),
    "3 partitions added": State(point="partitions added@1"),
    "4 half appended": State(point="half appended@1", appended=STEP),
    "5 all appended": State(point="all appended@1", appended=BATCH),
    "6 offsets committed": State(point="offsets committed@1", appended=BATCH),
    "7a end sent, lost": State(point="offsets committed@1", appended=BATCH, end="lost"),
    "7b end sent, prepared": State(point="offsets committed@1", appended=BATCH, end="prepared", committed=True),
    "7c end sent, completed": State(point="offsets committed@1", appended=BATCH, end="completed", committed=True),
    "8 end answered": State(point="ended@1", appended=BATCH, committed=True),
    "9 commit log written": State(point="begun@2", batch=2),
}

# A batch is open, committed though nobody has heard of it, committed and not yet noted.
OPEN, UNHEARD, UNNOTED = "5 all appended", "7b end sent, prepared", "8 end answered"


def reach(scene: Scene, state: State) -> None:
    """The victim has come to the state, and is held there."""
    scene.start("victim", hold=state.point)
    scene.held("victim")
    if not state.end:
        return
    if state.end == "prepared":
        scene.markers = scene.proxy.add("WriteTxnMarkers:*:hold")
    lost = scene.proxy.add(f"EndTxn@victim:{'drop-request' if state.end == 'lost' else 'drop-response'}")
    scene.release("victim")
    lost.wait()
    if scene.markers is not None:
        scene.markers.wait()
    elif state.end == "completed":
        scene.await_stable()


def resume(scene: Scene, state: State) -> None:
    """Let the victim continue; if it waits for an answer, by breaking its connection."""
    if not state.end:
        scene.release("victim")
        return
    again = scene.proxy.add("EndTxn@victim:delay=0")
    scene.proxy.cut()
    if scene.markers is not None:
        again.wait_seen()
    release_markers(scene)


def release_markers(scene: Scene) -> None:
    if scene.markers is not None:
        scene.markers.release()


def succeed(scene: Scene, **changes: object) -> None:
    """Another driver takes over, to the query's end. The markers of a prepared transaction come once it waits for
    them."""
    asks_first = "DescribeTransactions"  # it looks before it takes the id
    if changes.get("from_committed"):  # of the group, or of the ledger's topic
        asks_first = "OffsetFetch" if scene.origin is None else "ListOffsets"
    asked = scene.proxy.add(f"{asks_first}@successor:delay=0")
    scene.start("successor", **changes)
    if scene.markers is not None:
        asked.wait_seen()
        release_markers(scene)
    scene.ended("successor")


def is_old(scene: Scene) -> bool:
    """Whether the broker is of the protocol before KIP-890."""
    return scene.kafka.version.startswith("3")


def invisible(state: State) -> int:
    """The number of invisible records that a state leaves in the log."""
    return 0 if state.committed else state.appended


def of_victim(scene: Scene, state: State) -> Outcome:
    """What the victim made of the batch at hand, once it has ended well."""
    report = scene.report("victim", state.batch)
    assert scene.authors(state.batch) == {"victim"}
    assert report["outcome"] == "committed"
    return Outcome.REDONE if report["redone"] else Outcome.RIDES_THROUGH


def by_author(scene: Scene, state: State) -> Outcome:
    """Whether the successor wrote the batch at hand again, or found it committed."""
    (author,) = scene.authors(state.batch)
    return Outcome.SKIPPED if author == "victim" else Outcome.REDONE
