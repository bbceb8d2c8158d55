"""The refusal of a batch: what was found, what it means for the data, and how to resolve it. Pure.

`query_refusals`, `batch_refusals` and `write_refusals` have one function for each finding; `verdicts` decides which one
applies.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.resolve import AND
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.reserved import LEDGER_TOPIC

Resolution = Literal["write", "skip", "skip-to", "take-group", "take-ledger"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Going on could lose or repeat data: what was found (`reason`), what it means for the data, how to resolve it
    (`actions`, a sentence each).

    `fingerprint` identifies it exactly; the operator may resolve it by one of `resolutions`. `given` are the words
    without which another refusal comes before this one.
    """

    reason: str
    meaning: str
    actions: tuple[str, ...]
    fingerprint: str = ""
    resolutions: tuple[Resolution, ...] = ()
    given: tuple[str, ...] = ()

    @property
    def choices(self) -> dict[str, str]:
        """The values of the option `resolve` for this refusal, each with what it does and when it is correct."""
        words = {f"{resolution}:{self.fingerprint}": _MEANS[resolution] for resolution in self.resolutions}
        return {AND.join((*self.given, word)): effect for word, effect in words.items()}

    @property
    def action(self) -> str:
        """The actions as one text."""
        return " ".join(self.actions)

    @property
    def remedy(self) -> str:
        """The actions and the choices, one a line."""
        lines = [f"- {action}" for action in self.actions]
        if self.resolutions:
            lines.append(
                "- To keep this checkpoint and its state, choose what you know to be correct with the sink's option "
                "`resolve`:"
            )
            lines += [f"  resolve='{word}' {effect}." for word, effect in self.choices.items()]
        return "\n".join(lines)


def owner_command(options: SinkOptions) -> str:
    """The command that shows who owns this query's transactional.id, and when it committed last; complete as
    `diagnosis_command` is.
    """
    return shlex.join(["kafka-eos", "query", "show", options.transactional_id, *_connection(options)])


def diagnosis_command(options: SinkOptions) -> str:
    """The command that shows both sides of a refusal of this query; complete, except for the properties of a secured
    cluster, whose file only the operator knows.
    """
    words = ["kafka-eos", "query", "resolve", options.transactional_id, *_connection(options)]
    if options.txn_app_id is not None:
        words += ["--option", f"txnAppId={options.txn_app_id}", "--option", f"txnVersion={options.txn_version}"]
    elif options.checkpoint_location is not None:
        words += ["--checkpoint-location", options.checkpoint_location]
    return shlex.join(words)


def _connection(options: SinkOptions) -> list[str]:
    words = ["--bootstrap-servers", options.client.servers]
    if options.client.security.protocol != "PLAINTEXT":
        words += ["--properties", "client.properties"]
    if options.ledger_topic not in ("", LEDGER_TOPIC):
        words += ["--ledger-topic", options.ledger_topic]
    return words


_MEANS: Mapping[Resolution, str] = {
    "write": "writes this batch; correct if none of it is in the output (otherwise, those records are repeated)",
    "skip": "treats this batch as written; correct if all of it is in the output (otherwise, missing records are lost)",
    "skip-to": "treats every batch that reads only committed offsets as written, and continues after these offsets "
    "(with a watermark, only correct if batches have the same limits as before, such as maxOffsetsPerTrigger: "
    "otherwise they close other windows, and some windows are repeated or lost)",
    "take-group": "uses that group anyway; correct if the other sink is gone for good",
    "take-ledger": "starts where that sink ended; correct if this output has all that it committed, as when the id "
    "was changed (otherwise, those records are lost)",
}


def name_of(entry: LedgerEntry | UnreadableEntry | MicroBatch | None) -> str:
    """A short name for exactly this entry or batch, for the values of `resolve`."""
    match entry:
        case None:
            return "none"
        case UnreadableEntry():
            return f"unreadable.{entry.digest[:8]}"
    return f"{entry.query_id[:8]}.{entry.batch_id}.{entry.digest[:8]}"
