"""The bounds and guards with which TLC checks the specification.

Bounds are small, because every way in which two runs can take turns counts. Each model has another emphasis, and a
fault costs most where two runs meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

GUARDS = (
    "Look", "HeldIsAsked", "Owner", "EarlierRuns", "LookAgain", "NamesEpoch", "KnownOpen", "ReadAgain", "Digest",
    "FirstAttempts", "Counts", "RetryAppendsNothing", "CommitOnly", "NewEpoch", "Fence",
)  # fmt: skip

TABLE_GUARDS = (
    "LookAtTable", "TableFirst", "FenceTable", "CommitPrepared", "ReadTableAgain", "TableAfterPrepare",
    "CommitOnlyAfterTable", "FenceUnknown", "CommitUntilOver", "OnlyOwnVersion", "SameRows",
)  # fmt: skip

INVARIANTS = (
    "ExactlyOnce", "InOrder", "Agree", "Consecutive", "DoneIsCommitted", "NothingLost", "OwnEpoch", "NoHarm",
    "RefusedForAReason", "NoPersonNeeded", "NothingHangs",
)  # fmt: skip

TABLE_INVARIANTS = (
    *(name for name in INVARIANTS if name not in ("RefusedForAReason", "NoPersonNeeded")),
    "TableInOrder", "TableHasIt", "CanBeCompleted", "DecisionStands", "NothingLostInTable", "TableRefusedForAReason",
    "TableNoPersonNeeded",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The constants of SharedTransaction.tla, or with a `table` of TableAndTopic.tla, without the guards `without`, and
    the invariants to check. `end_first`: also that this adds nothing to what happens without (Waiting.tla).
    """

    protocol: int = 2
    verification: bool = True
    end_first: bool = False
    outputs: int = 1
    records: int = 2
    runs: int = 2
    holds: bool = True
    table: bool = False
    table_late: int = 0
    late: int = 0
    again: int = 0
    timeouts: int = 0
    lost: int = 0
    old: int = 0
    without: tuple[str, ...] = ()
    invariants: tuple[str, ...] = INVARIANTS
    specification: str = "Spec"

    @property
    def module(self) -> str:
        if self.table:
            return "TableAndTopic"
        return "Waiting" if self.end_first else "SharedTransaction"

    def __str__(self) -> str:
        verified = "" if self.verification else " without verification"
        counts = {
            "records": self.records,
            "output partitions": self.outputs,
            "runs": self.runs,
            "unanswered": self.late,
            "unanswered by the table": self.table_late,
            "attempts again": self.again,
            "timeouts": self.timeouts,
            "lost checkpoints": self.lost,
            "old checkpoints": self.old,
        }
        bounds = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        first = ", the end first" if self.end_first else ""
        table = " with a table" if self.table else ""
        return f"TV{self.protocol}{verified}{first}, {'writer' if self.holds else 'sink'}{table}: {bounds}"

    def configuration(self, **more: int | str) -> str:
        """TLC's configuration file; `more` are constants of a module that extends SharedTransaction."""
        constants: dict[str, int | str] = {
            "TV": self.protocol,
            "Verification": str(self.verification).upper(),
            "EndFirst": str(self.end_first).upper(),
            "Outputs": set_of(range(1, self.outputs + 1)),
            "Ledger": self.outputs + 1,
            "Group": self.outputs + 2,
            "Records": self.records,
            "Runs": self.runs,
            "Holds": str(self.holds).upper(),
            "Table": str(self.table).upper(),
            "Guards": quoted(guard for guard in GUARDS if guard not in self.without),
            "Late": self.late,
            "Again": self.again,
            "Timeouts": self.timeouts,
            "Lost": self.lost,
            "Old": self.old,
            **more,
        }
        if self.table:
            constants["TableLate"] = self.table_late
            constants["TableGuards"] = quoted(guard for guard in TABLE_GUARDS if guard not in self.without)
        lines = [f"    {name} = {value}" for name, value in constants.items()]
        checked = [f"INVARIANT {invariant}" for invariant in self.invariants]
        if self.module == "Waiting":
            checked.append("PROPERTY NothingNew")
        return "\n".join([f"SPECIFICATION {self.specification}", "CONSTANTS", *lines, *checked, ""])


def set_of(items: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, items)) + "}"


def quoted(names: Iterable[str]) -> str:
    return set_of(f'"{name}"' for name in names)


_WRITER, _SINK = Model(), Model(holds=False)
_TV1 = replace(_WRITER, protocol=1)
_UNVERIFIED = replace(_TV1, verification=False)
_STAGE = Model(runs=1, outputs=2, again=1)  # one run, and its tasks
_TABLE = Model(table=True, specification="TableSpec", invariants=TABLE_INVARIANTS, records=1)
_OTHER_ROWS = replace(_TABLE, outputs=2)  # what is computed again may differ

EVERY_RUN = (
    _WRITER,
    replace(_WRITER, end_first=True),
    _TV1,
    replace(_SINK, protocol=1, records=1, timeouts=1),
    _UNVERIFIED,
    replace(_WRITER, lost=1),
    replace(_SINK, old=1),
    replace(_WRITER, records=1, late=1),
    replace(_STAGE, records=1, late=1),
    replace(_STAGE, protocol=1),
    replace(_STAGE, protocol=1, verification=False),
    replace(_TABLE, records=2),
    _OTHER_ROWS,
    replace(_OTHER_ROWS, end_first=True),
    replace(_OTHER_ROWS, protocol=1),
    replace(_TABLE, table_late=1),
)

LARGER = (
    replace(_WRITER, late=1),
    replace(_STAGE, late=1),
    replace(_STAGE, protocol=1, late=1),
    replace(_TV1, timeouts=1),
    replace(_SINK, timeouts=1),
    replace(_SINK, timeouts=1, end_first=True),
    replace(_WRITER, records=1, late=1, end_first=True),
    replace(_WRITER, records=1, late=1, timeouts=1),
    replace(_TV1, records=1, late=1, timeouts=1),
    replace(_UNVERIFIED, records=1, late=1, timeouts=1),
    replace(_TV1, again=1),
    replace(_SINK, protocol=1, again=1),
    replace(_TV1, records=1, again=1, timeouts=1),
    replace(_UNVERIFIED, records=1, again=1, timeouts=1),
    replace(_WRITER, records=1, late=1, again=1),
    replace(_TV1, records=1, late=1, again=1),
    replace(_UNVERIFIED, records=1, late=1, again=1),
    replace(_TV1, records=1, late=1, again=1, timeouts=1),
    replace(_WRITER, records=1, late=2),
    replace(_TV1, records=1, late=2),
    replace(_TV1, late=1),
    replace(_SINK, late=1),
    replace(_SINK, protocol=1, late=1),
    replace(_UNVERIFIED, late=1),
    replace(_WRITER, lost=1, old=1),
    replace(_SINK, protocol=1, lost=1, old=1),
    replace(_SINK, records=3),
    replace(_WRITER, runs=3, records=1),
    replace(_SINK, runs=3, records=1, protocol=1),
    replace(_STAGE, records=1, late=2, timeouts=1),
    replace(_STAGE, protocol=1, late=1, timeouts=1),
    replace(_OTHER_ROWS, timeouts=1),
    replace(_TABLE, protocol=1, timeouts=1),
    replace(_TABLE, table_late=1, timeouts=1),
    replace(_OTHER_ROWS, runs=1, again=1, table_late=1, timeouts=1),
    replace(_TABLE, records=2, table_late=1),
    replace(_TABLE, protocol=1, table_late=1),
    replace(_TABLE, late=1),
    replace(_TABLE, protocol=1, late=1),
    replace(_TABLE, protocol=1, verification=False, records=2),
    replace(_TABLE, protocol=1, holds=False, records=2),
    replace(_TABLE, records=2, lost=1),
    replace(_TABLE, records=2, old=1, table_late=1),
    replace(_TABLE, runs=3),
)

# What TLC must find without a guard: the model, and the invariant that it violates.
WEAKENED = {
    ("Look",): (_SINK, "NoHarm"),
    ("HeldIsAsked",): (_TV1, "NoHarm"),
    ("Owner",): (_SINK, "NoHarm"),
    ("EarlierRuns",): (replace(_SINK, records=3), "NoHarm"),
    ("LookAgain",): (replace(_SINK, late=1), "NoHarm"),
    ("NamesEpoch",): (replace(_WRITER, records=1, late=1, timeouts=1), "NoHarm"),
    ("KnownOpen",): (replace(_TV1, records=1, again=1, timeouts=1), "OwnEpoch"),
    ("ReadAgain",): (replace(_WRITER, records=1), "ExactlyOnce"),
    ("Digest",): (replace(_WRITER, old=1), "DoneIsCommitted"),
    ("FirstAttempts",): (_STAGE, "ExactlyOnce"),
    ("NewEpoch",): (replace(_STAGE, protocol=1, records=1), "ExactlyOnce"),
    ("Fence",): (replace(_UNVERIFIED, runs=1, records=1, again=1), "NothingHangs"),
    # Second locks: the first one alone holds, and so does the second one alone.
    ("RetryAppendsNothing", "FirstAttempts"): (replace(_STAGE, records=1), "ExactlyOnce"),
    ("Counts", "FirstAttempts"): (replace(_STAGE, records=1), "Agree"),
    ("CommitOnly", "NewEpoch"): (replace(_TV1, runs=1, records=1, late=1), "Agree"),
    ("CommitOnly", "ReadAgain"): (replace(_TV1, runs=1, records=1, late=1), "ExactlyOnce"),
    ("LookAtTable",): (_OTHER_ROWS, "TableHasIt"),
    ("TableFirst",): (_TABLE, "DecisionStands"),
    ("FenceTable",): (_TABLE, "NoHarm"),
    ("CommitPrepared",): (_OTHER_ROWS, "TableRefusedForAReason"),
    ("ReadTableAgain",): (_TABLE, "TableRefusedForAReason"),
    ("TableAfterPrepare",): (_TABLE, "CanBeCompleted"),
    ("CommitOnlyAfterTable",): (_TABLE, "TableHasIt"),
    ("FenceUnknown",): (replace(_TABLE, table_late=1), "DecisionStands"),
    ("CommitUntilOver",): (replace(_TABLE, late=1), "DecisionStands"),
    ("SameRows",): (replace(_OTHER_ROWS, timeouts=1), "TableHasIt"),
    ("OnlyOwnVersion",): (replace(_TABLE, records=2, old=1, table_late=1), "NoHarm"),
}

# A guard whose work another one does, too: without it alone, these hold.
SECOND_LOCKS = {
    "RetryAppendsNothing": (_STAGE,),
    "Counts": (_STAGE,),
    "CommitOnly": (replace(_WRITER, runs=1, late=2), replace(_TV1, runs=1, records=1, late=2)),
}


def weakened(without: tuple[str, ...]) -> tuple[Model, str]:
    """The model without these guards, and the invariant that it violates."""
    model, invariant = WEAKENED[without]
    return replace(model, without=without, invariants=(invariant,)), invariant
