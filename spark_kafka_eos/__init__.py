"""Exactly-once Kafka source and sink for PySpark structured streaming.

A micro-batch's output records, source offsets and ledger entry are committed in ONE Kafka transaction under a stable
transactional.id, appended to by many processes at once. After any crash the batch is wholly there or wholly not.

File map; imports point down only (`lint-imports` checks it):

    cli/        the command line `kafka-eos`
    demo/       `kafka-eos demo`, its job and its data
    testing/    the test kit: embedded brokers, a proxy that makes faults, drivers to kill
    registry/   values whose schemas are in a schema registry, as columns of Spark
    dead_letters/   for operators: read a topic of dead letters, send them back
    verify/     the checker: was an output written exactly once?
    spark/      the only place with PySpark: data source, sink, TransactionalWriter, ProgressListener
    reading/    from a source's positions to Arrow batches
    writing/    the steps of a shared transaction: blocks, staging, append, commit, checkpoint, preflight
    ledger/     which batch was committed last under a transactional.id, and what follows from that
    broker/     the only place with sockets: connections, coordinators, produce, fetch, admin
    core/       pure decisions: transaction states, barrier, planning, visibility, partitioner
    wire/       pure bytes <-> Arrow columns: record batches v2 and older, compression
    options/    from what a user writes to checked values
    failpoints.py model.py errors.py lazy.py   what all of them share
    ../lab/     from a checkout only: benchmarks, simulation, soak, fuzzing; nothing that ships imports it
    ../pyspark_kafka_eos/   Spark imports every installed module named pyspark_* and registers its DefaultSource

Not obvious:

1. A transaction belongs to (transactional.id, producer id, epoch), not to a connection. Processes share it by value.
   Sequence numbers count per partition, so no two processes may append to the same partition in one transaction.
2. EndTxn does not stop a straggler. Until the marker reaches its partition, an append with the old epoch is accepted
   and committed. Hence the barrier (core/barrier.py): commit only what first attempts appended, else abort and redo.
3. The broker detects duplicates by epoch and sequence, never by content. It would acknowledge and drop the other data
   of a second attempt. So an append task that is not a first attempt appends nothing.
4. Nothing sends InitProducerId before it has looked whose the transactional.id is and what is committed: it would fence
   a live owner. The ledger is read again after it, unless the epoch shows that nobody could commit in between.
5. An unanswered EndTxn(commit) is sent again as a commit and never followed by an abort (KAFKA-17754).
6. The batch's own transaction writes the ledger's record and its pointer. Both have a serial number, and the later one
   counts: one of them may be lost or come from an outdated broker.
7. A batch id may come back with another range (a rewound checkpoint). A batch is skipped only if query, id and the
   digest of its offsets match.
8. Spark commits in another process than it writes in, with another instance: constructors initialize nothing.
9. Importing this package imports next to nothing. Spark imports it in every planning process, and executors, the
   laboratory and tests of the lower layers work without PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.errors import (
    AttemptsExhausted,
    AuthenticationFailed,
    AuthorizationFailed,
    BrokerError,
    BrokerUnreachable,
    CheckpointUnusable,
    CommitOutcomeUnknown,
    ConfigurationError,
    CorruptRecordBatch,
    DataLoss,
    IllegalTransactionState,
    InvalidRow,
    InvalidSchema,
    KafkaEosError,
    LedgerRefused,
    PreflightFailed,
    ProducerFenced,
    RegistryError,
    ReplayFailed,
    StagingFull,
    StagingLost,
    TooManyDeadLetters,
    TransactionAborted,
    UndecodableRecord,
    UnknownTopic,
    must_not_restart,
)
from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.core.lag import offsets_behind_latest
    from spark_kafka_eos.ledger.progress import cluster_id
    from spark_kafka_eos.options import from_properties
    from spark_kafka_eos.registry.columns import from_confluent, to_confluent
    from spark_kafka_eos.spark.arrow_stream import arrow_stream
    from spark_kafka_eos.spark.datasource import KafkaEosDataSource
    from spark_kafka_eos.spark.dead_letters import aside, split
    from spark_kafka_eos.spark.follow import follow
    from spark_kafka_eos.spark.lineage import LineageListener
    from spark_kafka_eos.spark.progress import ProgressListener
    from spark_kafka_eos.spark.stopping import stop_on_sigterm
    from spark_kafka_eos.spark.writer import BatchTransaction, TransactionalWriter
    from spark_kafka_eos.writing.report import CommitReport

__version__ = "0.2.0"

__all__ = [
    "AttemptsExhausted",
    "AuthenticationFailed",
    "AuthorizationFailed",
    "BatchTransaction",
    "BrokerError",
    "BrokerUnreachable",
    "CheckpointUnusable",
    "CommitOutcomeUnknown",
    "CommitReport",
    "ConfigurationError",
    "CorruptRecordBatch",
    "DataLoss",
    "IllegalTransactionState",
    "InvalidRow",
    "InvalidSchema",
    "KafkaEosDataSource",
    "KafkaEosError",
    "LedgerRefused",
    "LineageListener",
    "PreflightFailed",
    "ProducerFenced",
    "ProgressListener",
    "RegistryError",
    "ReplayFailed",
    "StagingFull",
    "StagingLost",
    "TooManyDeadLetters",
    "TransactionAborted",
    "TransactionalWriter",
    "UndecodableRecord",
    "UnknownTopic",
    "__version__",
    "arrow_stream",
    "aside",
    "cluster_id",
    "follow",
    "from_confluent",
    "from_properties",
    "must_not_restart",
    "offsets_behind_latest",
    "split",
    "stop_on_sigterm",
    "to_confluent",
]

# What needs Spark, or is rarely needed, is imported when it is first asked for.
__getattr__ = lazy(
    __name__,
    {
        "BatchTransaction": "spark_kafka_eos.spark.writer",
        "CommitReport": "spark_kafka_eos.writing.report",
        "KafkaEosDataSource": "spark_kafka_eos.spark.datasource",
        "LineageListener": "spark_kafka_eos.spark.lineage",
        "ProgressListener": "spark_kafka_eos.spark.progress",
        "TransactionalWriter": "spark_kafka_eos.spark.writer",
        "arrow_stream": "spark_kafka_eos.spark.arrow_stream",
        "aside": "spark_kafka_eos.spark.dead_letters",
        "cluster_id": "spark_kafka_eos.ledger.progress",
        "follow": "spark_kafka_eos.spark.follow",
        "from_confluent": "spark_kafka_eos.registry.columns",
        "from_properties": "spark_kafka_eos.options",
        "offsets_behind_latest": "spark_kafka_eos.core.lag",
        "split": "spark_kafka_eos.spark.dead_letters",
        "stop_on_sigterm": "spark_kafka_eos.spark.stopping",
        "to_confluent": "spark_kafka_eos.registry.columns",
    },
)
