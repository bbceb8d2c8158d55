"""Up to which offsets of the source the output must be complete. Pure.

The ledger decides. It is written in the transaction of the records; the group is open to everybody who may commit to
it, and in real time it is a copy. But what the drivers know to be committed, they have committed, although ledger or
group may have lost it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition

_EXAMPLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """`ends` has the offset up to which the output must have each partition of the source, and `up_to` says what these
    are. A partition of which nobody has an offset is left out. `doubt`: why they may be too low, empty if nothing says
    so.
    """

    ends: Offsets
    up_to: str
    doubt: str = ""


def due(
    partitions: Sequence[TopicPartition], *, ledger: Offsets, group: str | None, of_group: Offsets, history: Offsets
) -> Due:
    """Of each of these partitions the ledger's offset, else that of `group`; or where the history ends, if that is
    later.
    """
    ends: dict[TopicPartition, int] = {}
    whose = []
    for name, offsets in {"the ledger": ledger, f"group {group!r}": of_group}.items():
        if found := {tp: offsets[tp] for tp in partitions if tp in offsets and tp not in ends}:
            ends |= found
            whose.append(name)
    if later := {tp: history[tp] for tp in partitions if tp in history and history[tp] > ends.get(tp, -1)}:
        ends |= later
        whose.append("the history")
    both = [tp for tp in partitions if tp in ledger and tp in of_group]
    before = _places({tp: of_group[tp] for tp in both if of_group[tp] < ends[tp]})
    after = {tp: of_group[tp] for tp in both if of_group[tp] > ends[tp]}
    doubt = ""
    if after:
        doubt = f"group {group!r} is at {_places(after)}, but the ledger at {_places({tp: ledger[tp] for tp in after})}"
        doubt += ": somebody has set the group, or the ledger has lost a commit"
    behind = f" (group {group!r} is at {before})" if before else ""
    return Due(ends=ends, up_to=f"the offsets of {' and '.join(whose)}{behind}" if ends else "", doubt=doubt)


def _places(offsets: Offsets) -> str:
    named = [f"{tp}@{offset}" for tp, offset in sorted(offsets.items())]
    return ", ".join(named[:_EXAMPLES]) + ", …" * (len(named) > _EXAMPLES)
