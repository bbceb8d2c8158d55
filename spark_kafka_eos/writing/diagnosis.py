"""What the sink would decide about a query's next batch, found out without owning its transactional.id.

Nothing is changed: neither on the cluster, whose ledger is only read, nor in the checkpoint.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from spark_kafka_eos.broker import describe
from spark_kafka_eos.broker.cluster import Cluster
from spark_kafka_eos.broker.transactions import TransactionCoordinator
from spark_kafka_eos.core.ledger import Unreadable
from spark_kafka_eos.core.preflight import Unread
from spark_kafka_eos.core.recovery import Verdict
from spark_kafka_eos.core.transactions import TransactionFacts
from spark_kafka_eos.errors import CheckpointUnusable
from spark_kafka_eos.model import LedgerEntry, MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.writing.checkpoint import next_batch
from spark_kafka_eos.writing.files import files_at
from spark_kafka_eos.writing.ledger_keeper import LedgerKeeper
from spark_kafka_eos.writing.transaction import batch_write, decide_batch_write, decide_micro_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Both sides, and the sink's verdict on them.

    `entry` is what the ledger has, `owner` what the coordinator says of the transactional.id, None if it does not know
    it. `batch` is the next batch of the query, None without a checkpoint or if nothing is
    planned in it; then there is no `verdict`. `planned`: Spark has planned it, so its offsets and its digest are known,
    and the words of a refusal are those of its message.
    """

    entry: LedgerEntry | Unreadable | None
    owner: TransactionFacts | Unread | None = None
    batch: MicroBatch | None = None
    planned: bool = False
    verdict: Verdict | None = None


def diagnose(cluster: Cluster, options: SinkOptions) -> Diagnosis:
    """The verdict on the next batch of the query with this checkpointLocation, or on this txnAppId and txnVersion.

    Waits for the outcome of an open transaction. Raises CheckpointUnusable, ConfigurationError, LedgerRefused if
    another program writes to the ledger, AuthorizationFailed, BrokerError, BrokerUnreachable.
    """
    keeper = LedgerKeeper(
        options,
        cluster,
        TransactionCoordinator(cluster, options.transactional_id, options.transaction_timeout_ms),
    )
    entry = keeper.look()
    owner = describe.transaction(cluster, options.transactional_id, now_ms=int(time.time() * 1e3))
    known = Diagnosis(entry=entry, owner=owner)
    if options.txn_app_id is not None and options.txn_version is not None:
        write = batch_write(options.txn_app_id, options.txn_version)
        verdict = keeper.verdict(decide_batch_write(options), write)
        return replace(known, batch=write, planned=True, verdict=verdict)
    if options.checkpoint_location is None:
        return known
    try:
        batch, planned = next_batch(files_at(options.checkpoint_location, "checkpointLocation"))
    except OSError as error:
        raise CheckpointUnusable(f"the checkpoint {options.checkpoint_location!r} cannot be read: {error}") from error
    if batch is None:
        return known
    return replace(known, batch=batch, planned=planned, verdict=keeper.verdict(decide_micro_batch(options), batch))
