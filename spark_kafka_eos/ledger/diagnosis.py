"""What the sink would decide about a query's next batch, found out without owning its transactional.id.

Nothing is changed: neither on the cluster, whose ledger is only read, nor in the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts, Unavailable
from spark_kafka_eos.ledger.decide import batch_write, decide_batch_write, decide_micro_batch, destination_of
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Verdict
from spark_kafka_eos.ledger.write_verdicts import NAMED_BY_ROWS
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions

# The next batch, None if nothing is planned, and whether Spark has planned it.
Planned = Callable[[], tuple[MicroBatch | None, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Both sides, and the sink's verdict on them.

    `entry` is what the ledger has, `owner` what the coordinator says of the transactional.id, None if it does not know
    it. `batch` is the next batch of the query, None without a checkpoint or if nothing is planned; then there is no
    `verdict`. `planned`: Spark has planned it, so its offsets and its digest are known, and a refusal lists the same
    values of `resolve` as its message. `in_real_time`: the verdict is that on a batch in real time.
    """

    entry: LedgerEntry | UnreadableEntry | None
    owner: TransactionFacts | Unavailable | None = None
    batch: MicroBatch | None = None
    planned: bool = False
    verdict: Verdict | None = None
    in_real_time: bool = False


def diagnose(cluster: Cluster, options: SinkOptions, planned: Planned, *, in_real_time: bool = False) -> Diagnosis:
    """The verdict on the query's next batch, which `planned` reads from its checkpoint, or on this txnAppId and
    txnVersion. The batch is taken for one `in_real_time` also if the query's last one was.

    Waits for the outcome of an open transaction. A refusal counts if ledger and checkpoint are the same in a second
    look: a live driver may have committed between the two. Raises ConfigurationError, LedgerRefused if another program
    writes to the ledger, AuthorizationFailed, BrokerError, BrokerUnreachable, and what `planned` raises.
    """
    diagnosis = _looked(cluster, options, planned, in_real_time=in_real_time)
    for _ in range(describe.MOST_LOOKS - 1):
        if not isinstance(diagnosis.verdict, Refuse):
            break
        before, diagnosis = diagnosis, _looked(cluster, options, planned, in_real_time=in_real_time)
        if (before.entry, before.batch) == (diagnosis.entry, diagnosis.batch):
            break
    return diagnosis


def _looked(cluster: Cluster, options: SinkOptions, planned: Planned, *, in_real_time: bool) -> Diagnosis:
    keeper = LedgerKeeper(options, cluster)
    entry = keeper.read_settled()
    owner = describe.transaction(cluster, options.transactional_id, now_ms=int(time.time() * 1e3))
    diagnosis = Diagnosis(entry=entry, owner=owner)
    if options.txn_app_id is not None and options.txn_version is not None:
        # Which topics the rows of a write name is only known when it runs.
        destination = destination_of(options, ())
        write = batch_write(options.txn_app_id, options.txn_version, destination=destination)
        verdict = keeper.verdict(decide_batch_write(options), write)
        return replace(diagnosis, batch=write, planned=not destination.startswith(NAMED_BY_ROWS), verdict=verdict)
    batch, known_range = planned()
    if batch is None:
        return diagnosis
    in_real_time = in_real_time or _was_in_real_time(entry, batch)
    if in_real_time:
        verdict = keeper.verdict(decide_in_real_time(options), replace(batch, buckets=0))
    else:
        verdict = keeper.verdict(decide_micro_batch(options), batch)
    return replace(diagnosis, batch=batch, planned=known_range, verdict=verdict, in_real_time=in_real_time)


def _was_in_real_time(entry: LedgerEntry | UnreadableEntry | None, batch: MicroBatch) -> bool:
    """Whether the batch's query ran in real time last. One of another query may be meant for micro-batches."""
    return isinstance(entry, LedgerEntry) and entry.query_id == batch.query_id and entry.buckets is not None
