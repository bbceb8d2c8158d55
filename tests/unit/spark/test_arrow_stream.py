"""What `arrow_stream` takes, what a transform may return, which errors a task raises; no Spark, no broker."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StructType

from spark_kafka_eos.appending.blocks import EncodeSettings, Target
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.dead_letters.rows import DeadLetterTopic
from spark_kafka_eos.errors import ConfigurationError, DataLoss, InvalidRow, InvalidSchema, errors_of_source
from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.reading.ranges import as_rows
from spark_kafka_eos.spark import arrow_stream as module
from spark_kafka_eos.spark import encode_stage
from spark_kafka_eos.spark.arrow_stream import RangeReader, arrow_stream, chosen, sink_columns
from spark_kafka_eos.spark.encode_stage import ShufflingTask, stage_rows
from spark_kafka_eos.spark.sql_transform import SqlTransform
from spark_kafka_eos.spark.writer import TransactionalWriter

SOURCE = {"kafka.bootstrap.servers": "broker.invalid:9092", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "broker.invalid:9092", "kafka.transactional.id": "copy", "topic": "out"}
OUT = EncodeSettings(topic="out", targets={"out": Target(partitions=1)})
ANY = EncodeSettings(topic=None, targets={})
UNKNOWN_TO_SPARK = pa.nulls(1, pa.month_day_nano_interval())
DEAD = EncodeSettings(topic="out", targets={}, dead_letters=DeadLetterTopic(topic="dead"))


def batch(**columns: pa.Array | list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


# -- what arrow_stream takes

NO_SPARK: Any = SimpleNamespace(
    readStream=SimpleNamespace(format=lambda _: SimpleNamespace(options=lambda **_: SimpleNamespace(load=lambda: None)))
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"real_time": "0 seconds"}, "lasts for a second at least"),
        ({"real_time": "soon"}, "'real_time': 'soon' is not a valid duration"),
        ({"real_time": "5 minutes", "commit_interval": "often"}, "'commit_interval': 'often' is not a valid duration"),
        ({"commit_interval": "100 milliseconds"}, "'commit_interval': is set without real_time"),
        ({"buckets": 2}, "'buckets': is set without real_time"),
    ],
)
def test_arguments_of_real_time_that_cannot_be_used_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), **arguments)


def test_a_limit_of_a_batchs_dead_letters_is_refused_in_real_time() -> None:
    writer = TransactionalWriter(SINK | {"deadLetterTopic": "dead", "maxDeadLetters": "1%"})
    with pytest.raises(ConfigurationError, match="'maxDeadLetters': limits those of a micro-batch"):
        arrow_stream(NO_SPARK, SOURCE, writer, real_time="5 minutes")


@pytest.mark.parametrize("buckets", [0, -2])
def test_in_real_time_there_is_one_bucket_at_least(buckets: int) -> None:
    with pytest.raises(ConfigurationError, match=f"'buckets': is {buckets}"):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), real_time="5 minutes", buckets=buckets)


def test_in_real_time_the_topics_that_rows_may_name_are_declared() -> None:
    nameless = {name: value for name, value in SINK.items() if name != "topic"}
    with pytest.raises(ConfigurationError, match="'outputTopics': is required in real time if rows name their topics"):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(nameless), real_time="5 minutes")
    declared = TransactionalWriter(nameless | {"outputTopics": "out,other"})
    with pytest.raises(AttributeError, match="writeStream"):  # the options are accepted, and there is no Spark
        arrow_stream(NO_SPARK, SOURCE, declared, real_time="5 minutes")


def columns(schema: StructType | str | None = None, *, copy: bool, **given: str) -> tuple[str, ...]:
    return chosen(source_options(SOURCE | given), schema, copy=copy).columns


def test_a_copy_reads_only_what_it_writes() -> None:
    assert columns(copy=True) == ("key", "value")
    assert columns(copy=True, includeHeaders="true") == ("key", "value", "headers")


def test_a_transform_gets_all_columns_or_those_of_the_schema() -> None:
    assert columns(copy=False) == ()
    assert columns(StructType().add("value", BinaryType()), copy=False) == ("value",)


def test_a_schema_that_the_source_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="may only select columns"):
        columns(StructType().add("value", IntegerType()), copy=False)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"Rows": "records"}, "'rows': is set by arrow_stream"),
        ({"subscribe": None}, "the topics to read are not set"),
        ({"maxOffsetPerTrigger": 5}, "maxOffsetPerTrigger.*maxOffsetsPerTrigger"),
    ],
)
def test_a_wrong_option_of_the_source_is_refused_before_anything_starts(wrong: dict[str, object], message: str) -> None:
    no_spark: Any = None
    with pytest.raises(ConfigurationError, match=message):
        arrow_stream(no_spark, SOURCE | wrong, TransactionalWriter(SINK))


def test_a_password_is_not_in_what_python_prints_of_a_task() -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    login |= {"kafka.sasl.username": "reader", "kafka.sasl.password": "s3cret"}
    assert "s3cret" not in repr(RangeReader(source_options(SOURCE | login), None))


# -- what a transform returns


def test_the_sinks_columns_are_written_and_others_left_out() -> None:
    given = batch(offset=[1], VALUE=[b"v"], Key=["k"], topic=["ignored"])
    assert sink_columns(given, OUT).to_pydict() == {"key": ["k"], "value": [b"v"]}
    assert sink_columns(given, ANY).to_pydict() == {"key": ["k"], "value": [b"v"], "topic": ["ignored"]}


def test_a_column_that_is_left_out_may_have_any_type() -> None:
    given = batch(value=[b"v"], topic=[1], span=UNKNOWN_TO_SPARK)
    assert sink_columns(given, OUT).schema.names == ["value"]


def test_dead_letters_may_have_an_error_where_there_is_a_topic_for_them() -> None:
    given = batch(value=[b"v"], error=pa.nulls(1, ERROR))
    assert sink_columns(given, DEAD).schema.names == ["value", "error"]


@pytest.mark.parametrize(
    ("returned", "settings", "message"),
    [
        (None, OUT, "transform returned NoneType, not pyarrow.RecordBatch"),
        (pa.table({"value": [b"v"]}), OUT, "transform returned Table, not pyarrow.RecordBatch"),
        (batch(key=[b"k"]), OUT, "what transform returned does not fit the sink: there is no column 'value'"),
        (batch(value=[1]), OUT, "what transform returned .* 'value' has type bigint"),
        (batch(value=[b"v"], partition=[1]), OUT, "what transform returned .* 'partition' has type bigint"),
        (batch(value=[b"v"]), ANY, "what transform returned .* neither the option 'topic' nor a column 'topic'"),
        (batch(value=[b"v"], Value=[b"v"]), OUT, "what transform returned .* two columns 'value'"),
        (batch(value=UNKNOWN_TO_SPARK), OUT, "what transform returned .* month_day_nano_interval is not supported"),
    ],
)
def test_what_does_not_fit_the_sink_is_refused_and_transform_is_named(
    returned: object, settings: EncodeSettings, message: str
) -> None:
    with pytest.raises(InvalidSchema, match=message) as refused:
        sink_columns(returned, settings)
    assert "pyarrow.RecordBatch" in str(refused.value)


def test_other_columns_than_in_the_batch_before_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    read = iter([batch(value=[b"1"]), batch(key=[b"2"], value=[b"2"])])
    monkeypatch.setattr(module, "read_records", lambda *_: read)
    ranges = as_rows([OffsetRange(partition=TopicPartition("orders", 0), start=0, end=2)])
    with pytest.raises(InvalidSchema, match="transform returned the columns value, then key, value"):
        list(RangeReader(source_options(SOURCE), lambda rows: rows)(iter([ranges]), OUT))


def test_a_task_without_ranges_reads_nothing() -> None:
    assert list(RangeReader(source_options(SOURCE), None)(iter(()), OUT)) == []


# -- errors in a task


@pytest.fixture(autouse=True)
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode_stage, "task_context", lambda: SimpleNamespace(partitionId=lambda: 0))


def failing_source(*_: object) -> Iterator[pa.RecordBatch]:
    with errors_of_source():
        yield batch(key=[b"k"], value=[b"v"])
        raise DataLoss("offsets are gone")


def failing_rows(*_: object) -> Iterator[pa.RecordBatch]:
    yield batch(key=[b"k"], value=[b"v"])
    raise InvalidRow("a row is too large")


def test_an_error_of_the_source_is_raised_so_that_spark_runs_the_task_again() -> None:
    client = sink_options(SINK).client
    with pytest.raises(DataLoss):
        stage_rows(failing_source(), client, OUT, Staging(None, inline_bytes=1_000), "0", 0)
    with pytest.raises(DataLoss):
        list(ShufflingTask(client, OUT, 1, failing_source)(iter(())))


def test_an_error_of_the_rows_is_told_to_the_driver() -> None:
    client = sink_options(SINK).client
    report = stage_rows(failing_rows(), client, OUT, Staging(None, inline_bytes=1_000), "0", 0)
    assert isinstance(report.error, InvalidRow)
    assert len(list(ShufflingTask(client, OUT, 1, failing_rows)(iter(())))) == 1


def test_a_query_stays_open_from_one_transaction_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = list[duckdb.DuckDBPyConnection]()
    connect = duckdb.connect

    def noted(*given: Any, **more: Any) -> duckdb.DuckDBPyConnection:
        opened.append(connect(*given, **more))
        return opened[-1]

    monkeypatch.setattr(duckdb, "connect", noted)
    reader = RangeReader(
        source_options(SOURCE), SqlTransform("SELECT key, value FROM records"), columns=("key", "value")
    )
    read = batch(key=[b"1"], value=[b"a"])
    for _ in range(2):
        assert [rows.to_pylist() for rows in reader.rows(iter([read]), OUT)] == [[{"key": b"1", "value": b"a"}]]
    assert len(opened) == 1
    reader.close()
    assert list(reader.rows(iter([read]), OUT))
    assert len(opened) == 2
    reader.close()
