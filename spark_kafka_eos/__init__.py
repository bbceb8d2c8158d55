"""Exactly-once Kafka source and sink for PySpark structured streaming.

A micro-batch's output records, source offsets and ledger entry are committed in ONE Kafka transaction under a stable
transactional.id, appended to by many processes at once. After any crash the batch is wholly there or wholly not.

File map; imports point down only (`lint-imports` checks it). Four packages could stand alone:

    tools/      what operators run: the command line, doctor, replay, the checker, listeners
    testing/    the test kit: embedded brokers, a proxy that makes faults, drivers to kill; `kafka-eos demo`
    registry/   values whose schemas are in a schema registry, as columns of Spark
    kafka/      the client: auth, wire, protocol, fetching, producing; it imports nothing of the others

The others are the connector's, one for each concept:

    spark/      PySpark: data source, sink, TransactionalWriter
    real_time/  tasks that commit by themselves, within milliseconds
    preflight/  checks before the first batch
    reading/    from a source's positions to Arrow batches
    transaction/    begins, commits or aborts the shared transaction of a micro-batch
    participants/   a table that takes part in a micro-batch
    ledger/     which batch was committed last under a transactional.id, and what follows from that
    observe/    what a query reports of itself: logs, metrics, traces
    appending/  from rows to record batches in Kafka's logs: blocks, staging, append, barrier
    dead_letters/   why a record is one, and what it says of itself
    options/    from what a user writes to checked values
    micro_batch.py source_offset.py     values that driver and executors exchange, and that the checkpoint keeps
    startup/    what makes Spark's Python processes start sooner
    errors.py failpoints.py lazy.py     what all of them share
    moved.py    where modules of earlier releases are
    ../lab/     from a checkout only: benchmarks, simulation, soak, fuzzing; nothing that ships imports it
    ../pyspark_kafka_eos/   Spark imports every installed module named pyspark_* and registers its DefaultSource
    ../kafka_eos_python/    the command `kafka-eos-python`, which starts Spark's Python processes

In each package decisions are apart from requests. Modules that reach neither sockets nor Spark, and no clock, say so
in their docstring ("Pure" as a sentence), and `lint-imports` checks these, too.

Not obvious:

1. A transaction belongs to (transactional.id, producer id, epoch), not to a connection. Processes share it by value.
   Sequence numbers count per partition, so no two processes may append to the same partition in one transaction.
2. EndTxn does not stop a straggler. Until the marker reaches its partition, an append with the old epoch is accepted
   and committed. Hence the barrier (appending/barrier.py): commit only what first attempts appended, else abort and
   redo.
3. The broker detects duplicates by epoch and sequence, never by content. It would acknowledge and drop the other data
   of a second attempt. So an append task that is not a first attempt appends nothing.
4. Nothing sends InitProducerId before it has asked who owns the transactional.id and what is committed: it would fence
   a live owner. The ledger is read again after it, unless the epoch shows that nobody could commit in between.
5. An unanswered EndTxn(commit) is sent again as a commit and never followed by an abort (KAFKA-17754).
6. The batch's own transaction writes the ledger's record and its pointer. Both have a serial number, and the later one
   counts: one of them may be lost or come from an outdated broker.
7. A batch id may come back with another range (a rewound checkpoint). A batch is skipped only if query, id and the
   digest of its offsets match.
8. Spark commits in another process than it writes in, with another instance: constructors initialize nothing.
9. Importing this package imports next to nothing. Spark imports it in every planning process, and executors, the
   laboratory and tests of the lower packages work without PySpark.
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
    OutputLost,
    PreflightFailed,
    ProducerFenced,
    RegistryError,
    ReplayFailed,
    StagingFull,
    StagingLost,
    TableFailed,
    TooManyDeadLetters,
    TransactionAborted,
    UndecodableRecord,
    UnknownTopic,
    must_not_restart,
)
from spark_kafka_eos.lazy import lazy
from spark_kafka_eos.moved import say_where_modules_went

if TYPE_CHECKING:
    from spark_kafka_eos.appending.report import CommitReport
    from spark_kafka_eos.ledger.progress import cluster_id
    from spark_kafka_eos.observe.lag import offsets_behind_latest
    from spark_kafka_eos.options import from_properties
    from spark_kafka_eos.participants.participant import Conflict, Participant, TableVersion
    from spark_kafka_eos.participants.sql import SqlTable
    from spark_kafka_eos.registry.arrow import confluent_decoder, confluent_encoder, connect_decoder
    from spark_kafka_eos.registry.columns import from_confluent, from_connect, to_confluent
    from spark_kafka_eos.registry.java_properties import registry_from_properties
    from spark_kafka_eos.spark.arrow_stream import arrow_stream
    from spark_kafka_eos.spark.datasource import KafkaEosDataSource
    from spark_kafka_eos.spark.dead_letters import split_errors, to_dead_letters
    from spark_kafka_eos.spark.delta import DeltaParticipant
    from spark_kafka_eos.spark.iceberg import IcebergParticipant
    from spark_kafka_eos.spark.stopping import stop_on_sigterm
    from spark_kafka_eos.spark.writer import BatchTransaction, TransactionalWriter
    from spark_kafka_eos.tools.listener.follow import print_progress
    from spark_kafka_eos.tools.listener.lineage import LineageListener
    from spark_kafka_eos.tools.listener.progress import ProgressListener

__version__ = "0.3.0.dev0"

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
    "Conflict",
    "CorruptRecordBatch",
    "DataLoss",
    "DeltaParticipant",
    "IcebergParticipant",
    "IllegalTransactionState",
    "InvalidRow",
    "InvalidSchema",
    "KafkaEosDataSource",
    "KafkaEosError",
    "LedgerRefused",
    "LineageListener",
    "OutputLost",
    "Participant",
    "PreflightFailed",
    "ProducerFenced",
    "ProgressListener",
    "RegistryError",
    "ReplayFailed",
    "SqlTable",
    "StagingFull",
    "StagingLost",
    "TableFailed",
    "TableVersion",
    "TooManyDeadLetters",
    "TransactionAborted",
    "TransactionalWriter",
    "UndecodableRecord",
    "UnknownTopic",
    "__version__",
    "arrow_stream",
    "cluster_id",
    "confluent_decoder",
    "confluent_encoder",
    "connect_decoder",
    "from_confluent",
    "from_connect",
    "from_properties",
    "must_not_restart",
    "offsets_behind_latest",
    "print_progress",
    "registry_from_properties",
    "split_errors",
    "stop_on_sigterm",
    "to_confluent",
    "to_dead_letters",
]

# What needs Spark, or is rarely needed, is imported when it is first asked for.
__getattr__ = lazy(
    __name__,
    {
        "BatchTransaction": "spark_kafka_eos.spark.writer",
        "CommitReport": "spark_kafka_eos.appending.report",
        "Conflict": "spark_kafka_eos.participants.participant",
        "DeltaParticipant": "spark_kafka_eos.spark.delta",
        "IcebergParticipant": "spark_kafka_eos.spark.iceberg",
        "KafkaEosDataSource": "spark_kafka_eos.spark.datasource",
        "LineageListener": "spark_kafka_eos.tools.listener.lineage",
        "Participant": "spark_kafka_eos.participants.participant",
        "ProgressListener": "spark_kafka_eos.tools.listener.progress",
        "SqlTable": "spark_kafka_eos.participants.sql",
        "TransactionalWriter": "spark_kafka_eos.spark.writer",
        "arrow_stream": "spark_kafka_eos.spark.arrow_stream",
        "cluster_id": "spark_kafka_eos.ledger.progress",
        "confluent_decoder": "spark_kafka_eos.registry.arrow",
        "confluent_encoder": "spark_kafka_eos.registry.arrow",
        "connect_decoder": "spark_kafka_eos.registry.arrow",
        "from_confluent": "spark_kafka_eos.registry.columns",
        "from_connect": "spark_kafka_eos.registry.columns",
        "from_properties": "spark_kafka_eos.options",
        "offsets_behind_latest": "spark_kafka_eos.observe.lag",
        "registry_from_properties": "spark_kafka_eos.registry.java_properties",
        "stop_on_sigterm": "spark_kafka_eos.spark.stopping",
        "to_confluent": "spark_kafka_eos.registry.columns",
        "to_dead_letters": "spark_kafka_eos.spark.dead_letters",
        "print_progress": "spark_kafka_eos.tools.listener.follow",
        "split_errors": "spark_kafka_eos.spark.dead_letters",
        "TableVersion": "spark_kafka_eos.participants.participant",
        # Names of earlier releases.
        "Held": "spark_kafka_eos.participants.participant",
        "aside": "spark_kafka_eos.spark.dead_letters",
        "follow": "spark_kafka_eos.tools.listener.follow",
        "split": "spark_kafka_eos.spark.dead_letters",
    },
)

say_where_modules_went()
