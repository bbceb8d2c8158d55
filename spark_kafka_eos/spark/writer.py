"""`TransactionalWriter`: writes each micro-batch of foreachBatch in one Kafka transaction.

    writer = TransactionalWriter(
        {"kafka.bootstrap.servers": …, "kafka.transactional.id": "orders", "topic": "orders-clean"}
    )
    orders.writeStream.foreachBatch(writer).option("checkpointLocation", path).start()

The records are appended to the transaction in one of two ways (option `appendMode`; appending.append_mode chooses):
- `driver`: encode tasks stage their blocks in files, and the driver appends them. There is no shuffle and only one
  Python stage, so this is fastest on one machine and for small batches. On a cluster, the driver's network limits it.
- `executors`: blocks are shuffled to append tasks, each of which owns some partitions. This scales with the cluster. It
  needs a classic session, because only its status store shows whether a task ran twice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager, nullcontext
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.errors import ConfigurationError, IllegalTransactionState
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.options import SinkOptions, WriteKind, sink_options
from spark_kafka_eos.options.outputs import OutputTopic
from spark_kafka_eos.options.sink_parser import output_topics_of, require_declared
from spark_kafka_eos.participants.participant import Participant, require_one
from spark_kafka_eos.spark.encode_stage import RowsOf
from spark_kafka_eos.spark.features import require_spark
from spark_kafka_eos.spark.jvm import running_batch
from spark_kafka_eos.spark.micro_batch_writer import BatchRows, MicroBatchWriter, TableRows
from spark_kafka_eos.spark.rows import check_schema, schema_ids, sink_rows
from spark_kafka_eos.transaction.begun import begun_batches

_log = logger(__name__)


class BatchTransaction:
    """The DataFrames of one micro-batch. When the `with` block ends, they are evaluated and written in one
    transaction.
    """

    def __init__(
        self,
        topic: str | None,
        output_topics: tuple[OutputTopic, ...] = (),
        *,
        dead_letters: bool = False,
        participant: Participant | None = None,
    ) -> None:
        self._topic, self._output_topics = topic, output_topics
        self._dead_letters = dead_letters
        self._participant = participant
        self._table_rows: Any = None
        self._writes: list[tuple[DataFrame, str | None]] = []

    def write(self, frame: DataFrame, topic: str | None = None) -> None:
        """Add a DataFrame with the sink's columns. `topic` overrides the option `topic`, and both override the
        column. Rows with an `error` go to `deadLetterTopic` instead. Raises ConfigurationError for a topic that was not
        declared, if any was. At the end of the block, a `topic` that does not exist is UnknownTopic, also with
        `deadLetterTopic`.
        """
        topic = topic or self._topic
        require_declared(topic, self._output_topics)
        check_schema(frame.schema, topic=topic, dead_letters=self._dead_letters)
        self._writes.append((frame, topic))

    def write_table(self, frame: DataFrame | Iterable[Any]) -> None:
        """Set the rows that the participant gets: a DataFrame, or what else it takes. What can be read only once, such
        as a generator, is read into a list here, because a commit that fails is repeated with the same rows. Raises
        ConfigurationError if there is no participant, IllegalTransactionState for a second call.
        """
        if self._participant is None:
            raise ConfigurationError(
                "participant",
                "write_table needs a table that takes part",
                action="Pass it to writer.transaction(batch_df, batch_id, participant=…).",
            )
        if self._table_rows is not None:
            raise IllegalTransactionState(
                "write_table was called a second time for this batch",
                action="Pass all rows in one call, for example with DataFrame.unionByName.",
            )
        if isinstance(frame, Iterable) and not isinstance(frame, Sized):  # a cursor need not be an iterator
            frame = list(frame)
        self._table_rows = frame

    def table_rows(self) -> TableRows | None:
        """What the participant gets, None if there is none."""
        if self._participant is None:
            return None
        return TableRows(participant=self._participant, rows=self._table_rows)

    def rows(self) -> BatchRows:
        """All rows as one DataFrame."""
        if not self._writes:
            return BatchRows()
        topics = {topic for _, topic in self._writes}
        constant = topics.pop() if len(topics) == 1 else None
        frames = [
            sink_rows(
                frame,
                topic=topic,
                constant_topic=constant is None and topic is not None,
                dead_letters=self._dead_letters,
            )
            for frame, topic in self._writes
        ]
        return BatchRows(
            frame=functools.reduce(lambda first, other: first.unionByName(other, allowMissingColumns=True), frames),
            topic=constant,
            topics=frozenset(topic for _, topic in self._writes if topic is not None),
            output_topics=self._output_topics,
            schema_ids=frozenset().union(*(schema_ids(frame.schema) for frame, _ in self._writes)),
        )


@contextmanager
def _computed_once(frame: DataFrame) -> Iterator[None]:
    """Have Spark compute the rows once for all that is made of them, unless the user has seen to that."""
    if _is_persisted(frame):
        yield
        return
    try:
        frame.persist()
    except PySparkException as error:  # over Spark Connect only: a classic session persists when it computes the rows
        raise ConfigurationError(
            "participant",
            f"a table can only take part if Spark persists the batch, and this Spark refuses to: {error}",
            action="Use compute that has DataFrame.persist: on Databricks not serverless compute.",
        ) from error
    try:
        yield
    finally:
        _unpersist(frame)


def _unpersist(frame: DataFrame) -> None:
    """Never raises: the batch is settled, whatever Spark answers, and its own error is more important."""
    try:
        frame.unpersist()
    except Exception as error:  # noqa: BLE001 - Spark's, each session has its own
        _log.warning("the rows of a batch stay persisted until Spark drops them: %s", str(error).partition("\n")[0])


def _is_persisted(frame: DataFrame) -> bool:
    level = frame.storageLevel
    return level.useMemory or level.useDisk


def _note_failure(options: Mapping[str, object]) -> None:
    """A writer could not be made. If that was in a batch's function, it may catch the error, and nothing is written."""
    if (running := running_batch()) is not None:
        query, run, batch_id = running
        named = (str(value) for name, value in options.items() if name.lower() == "kafka.transactional.id")
        batches = begun_batches(query, run)
        batches.end(batches.begin(batch_id, next(named, None)), "failed")


class TransactionalWriter:
    """Writes each micro-batch of one query, its source offsets and its ledger entry in one transaction.

    Takes the options of the `kafka-eos` sink; raises ConfigurationError if they are invalid. Pass it to foreachBatch,
    or use `transaction` in your own function to write several DataFrames or topics. Call it once per micro-batch: a
    second call, even from another thread or writer, raises IllegalTransactionState. It pickles without its connections.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        try:
            require_spark()
            self._options = sink_options(options, WriteKind.FOREACH_BATCH)
        except BaseException:
            _note_failure(options)
            raise
        self._writer = MicroBatchWriter(self._options)
        self._last_commit: CommitReport | None = None
        self._copied = False

    def __getstate__(self) -> dict[str, object]:
        self._copied = True
        return self.__dict__ | {"_copied": False}

    def __call__(self, batch_df: DataFrame, batch_id: int) -> None:
        with self.transaction(batch_df, batch_id) as transaction:
            transaction.write(batch_df)

    @contextmanager
    def transaction(
        self,
        batch_df: DataFrame,
        batch_id: int,
        output_topics: str | Iterable[str] | None = None,
        *,
        participant: Participant | None = None,
    ) -> Iterator[BatchTransaction]:
        """Collect DataFrames to write; at the end of the block, commit all of them or nothing.

        `output_topics` are the topics that this transaction may write, or their partitions (`orders:0-15`), by default
        those of the option `outputTopics`, of which they must be a part. A row for another one fails the batch before
        anything is sent (KIP-609).

        `participant` is a table that takes part (`participants`): it gets the rows of `write_table` if and only if the
        topics get those of `write`. Create it once, not for each batch. `batch_df` is persisted meanwhile, unless it
        is, so that both get the same rows of it.

        If the block raises, nothing is written, and the next batches are refused if the error does not end the query.
        Raises LedgerRefused if going on could lose or repeat data. Any other
        KafkaEosError is raised after the transaction was aborted, or says what is known about its outcome.
        """
        with self._writer.begin(batch_df, batch_id) as begun:
            if participant is not None:
                require_one(participant)
            with nullcontext() if participant is None else _computed_once(batch_df):
                collected = BatchTransaction(
                    self._options.topic,
                    output_topics_of(self._options, output_topics),
                    dead_letters=self._options.dead_letter_topic is not None,
                    participant=participant,
                )
                yield collected
                self._last_commit = self._writer.commit(begun, collected.rows(), collected.table_rows())

    def write_ranges(self, ranges: DataFrame, batch_id: int, rows_of: RowsOf) -> None:
        """Commit the rows that the encode tasks make of these offset ranges: for `arrow_stream`."""
        with self._writer.begin(ranges, batch_id) as begun:
            rows = BatchRows(
                frame=ranges,
                topic=self._options.topic,
                output_topics=output_topics_of(self._options, None),
                rows_of=rows_of,
            )
            self._last_commit = self._writer.commit(begun, rows)

    @property
    def settings(self) -> SinkOptions:
        """The checked options: for `arrow_stream`."""
        return self._options

    @property
    def last_commit(self) -> CommitReport | None:
        """The report of the last batch: outcome, records, producer id and epoch, append mode and its reason,
        milliseconds per step, attempts, timeline. None before the first batch.

        Raises RuntimeError if only a copy of this writer knows it: Spark Connect writes the batches on the server.
        """
        if self._last_commit is None and self._copied:
            raise RuntimeError(
                "last_commit is not known here: Spark Connect runs a copy of this writer on the server. Read "
                "last_commit inside the function that you pass to foreachBatch."
            )
        return self._last_commit
