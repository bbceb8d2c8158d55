"""What kind of cluster histories happen on, where that is no matter of chance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """`verification`: TV1's leaders ask the coordinator whether a partition is part of the transaction before they
    append to it (Kafka 3.6 and later, unless `transaction.partition.verification.enable=false`). TV2's always do.

    `classic_groups`: in TV1, groups are coordinated as Kafka 3 does it by default (see `offsets`).

    `expiry`: there may be weeks in which nobody commits anything, and brokers forget (see `expiry`). It alone draws
    more than a seed draws without it.

    `elsewhere`: the source is on another cluster than the sink, which keeps its progress in the ledger alone.
    """

    verification: bool = True
    classic_groups: bool = False
    expiry: bool = False
    elsewhere: bool = False

    @property
    def flags(self) -> str:
        """What the command `kafka-eos chaos simulate` is told for them."""
        flags = {
            " --no-verification": not self.verification,
            " --classic-groups": self.classic_groups,
            " --expiry": self.expiry,
            " --elsewhere": self.elsewhere,
        }
        return "".join(flag for flag, given in flags.items() if given)


USUAL = Conditions()
