"""The verdict on a micro-batch or a batch write, with the sink's options applied. Pure."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Protocol

from spark_kafka_eos.ledger import verdicts, write_verdicts
from spark_kafka_eos.ledger.ends import CommittedOffsets
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry, digest
from spark_kafka_eos.ledger.signing import Signer
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.outputs import names
from spark_kafka_eos.source_offset import SinkIdentity


class Decide(Protocol):
    """The verdict on a batch: `verdicts.decide` or `decide_batch_write`, with the operator's options applied."""

    def __call__(
        self,
        entry: LedgerEntry | UnreadableEntry | None,
        batch: MicroBatch,
        committed: CommittedOffsets | None = None,
        *,
        clusters: Sequence[str] = (),
        own: str = "",
        other_ids: Sequence[str] = (),
        ours: bool = False,
        only_markers: bool = False,
        deleted: Sequence[str] = (),
    ) -> verdicts.Verdict: ...


def signer_of(options: SinkOptions) -> Signer:
    """Signs with the option `ledgerKey`, if it is set."""
    return Signer(options.transactional_id, [key.reveal() for key in options.ledger_key])


def decide_micro_batch(options: SinkOptions, *, calls: bool = False) -> Decide:
    """The verdict on a streaming query's micro-batches; `calls`: those of foreachBatch, where a function calls the
    writer.
    """
    return functools.partial(
        verdicts.decide,
        sink=identity_of(options),
        take_over=options.take_over_query,
        resolve=options.resolve,
        calls=calls,
    )


def identity_of(options: SinkOptions) -> SinkIdentity:
    """Where this sink commits, but for the cluster, which only the brokers tell."""
    return SinkIdentity(transactional_id=options.transactional_id, ledger_topic=options.ledger_topic)


def batch_write(app_id: str | None, version: int | None, *, run: str = "", destination: str = "") -> MicroBatch:
    """A batch write with these txnAppId and txnVersion to this destination (`destination_of`); one without them is
    known by its `run`.
    """
    return MicroBatch(
        query_id=app_id or run,
        batch_id=version or 0,
        digest=digest({"txnAppId": app_id, "txnVersion": version, "destination": destination}),
        run_id=run or None,
        destination="" if app_id is None else destination,
    )


def destination_of(options: SinkOptions, topics: Iterable[str]) -> str:
    """Where a batch write goes: to the topics that its options name, or else to those that its rows name, which are
    among `topics`.
    """
    if options.topic is not None:
        return options.topic
    if options.output_topics:
        return ",".join(sorted(names(options.output_topics)))
    return write_verdicts.NAMED_BY_ROWS + ",".join(sorted(set(topics) - {options.dead_letter_topic}))


def decide_batch_write(options: SinkOptions) -> Decide:
    """The verdict on a batch write with `txnAppId`, which has no offsets."""

    def decide(
        entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch, *_: object, **__: object
    ) -> verdicts.Verdict:
        return write_verdicts.decide_batch_write(entry, batch, resolve=options.resolve)

    return decide
