"""The bounds and guards with which TLC checks RealTime.tla: tasks that run on, without micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.specification.models import quoted, set_of

REAL_TIME_GUARDS = (
    "ReadAsOwner", "HeldIsAsked", "FenceOld", "MicroFences", "FenceFirst", "Stable", "KnownBegin", "Commit",
    "CommitFirst", "OnlyCommitted", "TasksEnd", "SentOnce", "Ended",
)  # fmt: skip

REAL_TIME_INVARIANTS = (
    "AtMostOnce", "NothingSkipped", "NothingBehind", "NeverBack", "OneWriter", "OnlyTheLast", "LittleHarm",
    "NothingIsOpen",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RealTimeModel:
    """The constants of RealTime.tla without the guards `without`, and the invariants to check.

    `first` and `later` are the numbers of buckets that the first driver, and those after it, may have; 0 is a driver
    of micro-batches. `copies` is how often each task may commit where it is without an output. `begins` are the offsets
    at which a partition without a committed one may be begun.
    """

    protocol: int = 2
    verification: bool = True
    outputs: int = 1
    sources: int = 1
    records: int = 1
    drivers: int = 2
    first: tuple[int, ...] = (0, 1)
    later: tuple[int, ...] = (0, 1)
    copies: int = 0
    begins: tuple[int, ...] = (0,)
    restarts: int = 0
    batches: int = 0
    timeouts: int = 0
    strays: int = 0
    forgets: int = 0
    late: int = 0
    without: tuple[str, ...] = ()
    invariants: tuple[str, ...] = REAL_TIME_INVARIANTS

    @property
    def module(self) -> str:
        return "RealTime"

    def __str__(self) -> str:
        verified = "" if self.verification else " without verification"
        buckets = " then ".join(" or ".join(map(str, numbers)) for numbers in (self.first, self.later))
        sizes = {"source partitions": self.sources, "records in each": self.records, "output partitions": self.outputs}
        faults = {
            "restarts": self.restarts,
            "batches that go on": self.batches,
            "timeouts": self.timeouts,
            "late InitProducerId": self.strays,
            "forgotten offsets": self.forgets,
            "late requests of tasks": self.late,
        }
        bounds = [f"{self.drivers} drivers"]
        bounds += [f"{count} {name}" for name, count in sizes.items() if count > 1]
        bounds += [f"{self.copies} copies by each task"] if self.copies else []
        bounds += [f"{count} {name}" for name, count in faults.items() if count]
        begins = ", begun anywhere" if len(self.begins) > 1 else ""
        return f"real-time, TV{self.protocol}{verified}, buckets {buckets}: {', '.join(bounds)}{begins}"

    def configuration(self) -> str:
        """TLC's configuration file."""
        constants: dict[str, int | str] = {
            "TV": self.protocol,
            "Verification": str(self.verification).upper(),
            "EndFirst": "FALSE",
            "Outputs": set_of(range(1, self.outputs + 1)),
            "Ledger": self.outputs + 1,
            "Group": self.outputs + 2,
            "Sources": set_of(range(1, self.sources + 1)),
            "Records": self.records,
            "Drivers": self.drivers,
            "First": set_of(self.first),
            "Later": set_of(self.later),
            "Copies": self.copies,
            "Begins": set_of(self.begins),
            "Applied": str(self.protocol == 2).upper(),  # the group coordinator of KIP-848 came before TV2
            "Guards": quoted(guard for guard in REAL_TIME_GUARDS if guard not in self.without),
            "Restarts": self.restarts,
            "Batches": self.batches,
            "Timeouts": self.timeouts,
            "Strays": self.strays,
            "Forgets": self.forgets,
            "Late": self.late,
        }
        lines = [f"    {name} = {value}" for name, value in constants.items()]
        checked = [f"INVARIANT {invariant}" for invariant in self.invariants]
        return "\n".join(["SPECIFICATION Spec", "CONSTANTS", *lines, *checked, ""])


_TV2 = RealTimeModel()
_TV1 = replace(_TV2, protocol=1)
_TASKS = replace(_TV2, first=(1,), later=(1,))
_FEWER = replace(_TV2, sources=2, first=(2,), later=(1,))
_MORE = replace(_FEWER, first=(1,), later=(2,))
_TO_MICRO_BATCHES = replace(_TV2, first=(1,), later=(0,))

REAL_TIME_EVERY_RUN = (
    _TV2,
    _TV1,
    replace(_TASKS, drivers=1, restarts=1, copies=1, begins=(0, 1)),
    _FEWER,
    replace(_TASKS, batches=1),
)

REAL_TIME_LARGER = (
    replace(_TV2, restarts=1, begins=(0, 1)),
    replace(_TV1, restarts=1),
    replace(_TV2, timeouts=1),
    replace(_TV1, timeouts=1),
    replace(_TV1, verification=False, timeouts=1),
    replace(_TV2, strays=1),
    replace(_TV1, strays=1),
    replace(_TV2, forgets=1),
    replace(_TV1, forgets=1),
    replace(_TV2, copies=1, timeouts=1),
    replace(_TV1, copies=1, timeouts=1),
    replace(_TV2, copies=2, restarts=1),
    replace(_TV1, copies=1, strays=1),
    replace(_FEWER, copies=1),
    replace(_TV2, outputs=2),
    replace(_TV2, records=2),
    replace(_TV1, records=2),
    replace(_TV2, drivers=3),
    replace(_TV1, drivers=3),
    _MORE,
    replace(_FEWER, protocol=1),
    replace(_MORE, protocol=1),
    replace(_FEWER, drivers=1, restarts=1),
    replace(_FEWER, timeouts=1),
    replace(_TV2, batches=2, records=2),
    replace(_TV1, batches=2, records=2),
    replace(_TV2, batches=1, restarts=1, copies=1),
    replace(_FEWER, batches=1),
)

# What TLC must find without a guard: the model, and the invariant that it violates.
REAL_TIME_WEAKENED = {
    "ReadAsOwner": (_FEWER, "AtMostOnce"),
    "HeldIsAsked": (replace(_TASKS, restarts=1), "LittleHarm"),
    "FenceOld": (_FEWER, "AtMostOnce"),
    "MicroFences": (_TO_MICRO_BATCHES, "AtMostOnce"),
    "FenceFirst": (_TASKS, "AtMostOnce"),
    "Stable": (replace(_FEWER, protocol=1), "NeverBack"),
    "KnownBegin": (replace(_TASKS, forgets=1), "AtMostOnce"),
    "Commit": (_TO_MICRO_BATCHES, "AtMostOnce"),
    "CommitFirst": (_FEWER, "AtMostOnce"),
    "OnlyCommitted": (_TO_MICRO_BATCHES, "AtMostOnce"),
    "TasksEnd": (_TASKS, "AtMostOnce"),
    "SentOnce": (replace(_TASKS, protocol=1, records=2, late=1), "AtMostOnce"),
    "Ended": (replace(_TASKS, protocol=1, batches=1), "AtMostOnce"),
}

# With TV2, each transaction of a task has an epoch of its own, and the group has offsets with their marker.
REAL_TIME_SECOND_LOCKS = {
    "SentOnce": replace(_TASKS, records=2, late=1),
    "Stable": replace(_TASKS, restarts=1),
}
# But not for a partition that has no committed offset yet.
UNSTABLE_BEGIN = replace(_TASKS, drivers=1, restarts=1, begins=(0, 1), without=("Stable", "KnownBegin"))

# "Violated" by a behaviour in which a second driver goes on where the first one was, until all is committed.
COMPLETE = "NeverAllAfterTakeover"
TAKEOVERS = (
    _FEWER,
    _MORE,
    replace(_TV2, first=(0,), later=(1,), records=2),
    replace(_TV1, first=(1,), later=(1,), records=2),
)


def weakened_real_time(guard: str) -> tuple[RealTimeModel, str]:
    """The model without this guard, and the invariant that it violates."""
    model, invariant = REAL_TIME_WEAKENED[guard]
    return replace(model, without=(guard,), invariants=(invariant,)), invariant
