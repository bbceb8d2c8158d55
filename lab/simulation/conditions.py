"""The properties of the simulated clusters that are not random."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """`verification`: before leaders append, they ask the coordinator whether the partition is part of the transaction
    (in TV1: Kafka 3.6 and later, unless `transaction.partition.verification.enable=false`; in TV2: always).

    `classic_groups`: in TV1, the group coordinator is Kafka 3's default (see `offsets`).

    `expiry`: there may be weeks without commits, in which brokers forget (see `expiry`). This condition draws
    additional random numbers.

    `late`: drivers often pause before a batch, so that a successor takes over, and then come back; and faults are often
    at InitProducerId. It draws additional random numbers, too.

    `left_out`: coordinators leave out markers, each time in one partition, which had no leader then (Kafka 4.3 and 4.4;
    KAFKA-20734). It draws additional random numbers, too.

    `elsewhere`: source and sink are on different clusters, so that only the ledger has the progress.

    `real_time`: the query runs in real time, sometimes before or after micro-batches (see `real_time_history`).
    """

    verification: bool = True
    classic_groups: bool = False
    expiry: bool = False
    elsewhere: bool = False
    late: bool = False
    left_out: bool = False
    real_time: bool = False

    @property
    def flags(self) -> str:
        """These conditions as options of `python -m lab simulate`."""
        flags = {
            " --no-verification": not self.verification,
            " --classic-groups": self.classic_groups,
            " --expiry": self.expiry,
            " --elsewhere": self.elsewhere,
            " --late": self.late,
            " --left-out": self.left_out,
            " --real-time": self.real_time,
        }
        return "".join(flag for flag, is_set in flags.items() if is_set)


USUAL = Conditions()
