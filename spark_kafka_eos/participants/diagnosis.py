"""What the next start of a query with a table would do, found out without owning its transactional.id.

As a start does, it reads the table first, then asks the coordinator, then reads the ledger. Nothing is changed.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.decide import decide_micro_batch, signer_of
from spark_kafka_eos.ledger.diagnosis import Diagnosis, Planned
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Skip, Verdict, Write
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.participants.decide import Finish, Prepared, decide, prepared
from spark_kafka_eos.participants.failure import naming_the_table
from spark_kafka_eos.participants.participant import Participant, TableVersion
from spark_kafka_eos.participants.token import Token, UnreadableToken, decode


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDiagnosis:
    """What the table holds, what Kafka has, and what follows.

    `kafka` is the ledger's side; `verdict` is that of ledger and table on the query's next batch, None if that is
    unknown. `standing` is what a start would do whose next batch is the token's own: that is known without a
    checkpoint.
    """

    table: TableVersion
    token: Token | UnreadableToken | None
    transaction: Prepared
    kafka: Diagnosis
    standing: Verdict | Finish
    verdict: Verdict | Finish | None = None


def diagnose_with_table(
    cluster: Cluster, options: SinkOptions, participant: Participant, planned: Planned
) -> TableDiagnosis:
    """As `ledger.diagnosis.diagnose`, for a query whose micro-batches have this participant.

    Does not wait for an open transaction: a start would not, either. Raises what `diagnose` raises, and TableFailed.
    """
    for _ in range(describe.MOST_LOOKS):
        table = held_by(participant)
        diagnosis = _looked(cluster, options, table, planned)
        if (
            not (isinstance(diagnosis.standing, Refuse) or isinstance(diagnosis.verdict, Refuse))
            or held_by(participant) == table
        ):
            break  # else a live driver has committed in between, and the answers do not fit together
    return diagnosis


def held_by(participant: Participant) -> TableVersion:
    """What the table holds. Raises TableFailed for any error of the participant."""
    with naming_the_table("cannot be read"):
        return participant.held()


def _looked(cluster: Cluster, options: SinkOptions, table: TableVersion, planned: Planned) -> TableDiagnosis:
    token = decode(table.token, signer_of(options))
    owner = describe.settled(
        cluster, lambda: describe.transaction(cluster, options.transactional_id, now_ms=int(time.time() * 1e3))
    )
    keeper = LedgerKeeper(options, cluster)
    entry = keeper.glance().entry
    transaction = prepared(token if isinstance(token, Token) else None, owner)
    batch, known_range = planned()
    diagnosis = Diagnosis(
        entry=entry,
        owner=owner,
        batch=batch,
        planned=known_range,
        verdict=None if batch is None else keeper.verdict(decide_micro_batch(options), batch),
    )

    def with_table(batch: MicroBatch, verdict: Verdict) -> Verdict | Finish:
        return decide(
            table.version,
            token,
            transaction,
            entry,
            batch,
            verdict,
            transactional_id=options.transactional_id,
            cluster=cluster.cluster_id(),
        )

    return TableDiagnosis(
        table=table,
        token=token,
        transaction=transaction,
        kafka=diagnosis,
        standing=with_table(*_own(token, entry)),
        verdict=None if batch is None or diagnosis.verdict is None else with_table(batch, diagnosis.verdict),
    )


def _own(
    token: Token | UnreadableToken | None, entry: LedgerEntry | UnreadableEntry | None
) -> tuple[MicroBatch, Verdict]:
    """The token's batch, and what the ledger says of it."""
    if not isinstance(token, Token):
        return MicroBatch(query_id="", batch_id=0, digest=""), Write(reason="the table has no token")
    batch = MicroBatch(query_id=token.query_id, batch_id=token.batch_id, digest=token.digest)
    if isinstance(entry, LedgerEntry) and token.names(entry):
        return batch, Skip(reason=f"table and Kafka have {token}")
    return batch, Write(reason=f"the ledger does not have {token}")
