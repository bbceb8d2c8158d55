"""Which SQL `arrow_stream` takes, what is refused before anything is read, and what a query makes of a batch."""

from __future__ import annotations

import os
import pickle
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.errors import ConfigurationError, InvalidRow, InvalidSchema
from spark_kafka_eos.reading.records import arrow_schema
from spark_kafka_eos.spark import sql_transform
from spark_kafka_eos.spark.arrow_stream import arrow_stream
from spark_kafka_eos.spark.sql_rules import Node, refused
from spark_kafka_eos.spark.sql_transform import SqlTransform
from spark_kafka_eos.spark.writer import TransactionalWriter

COLUMNS = arrow_schema(include_headers=True)
SOURCE = {"kafka.bootstrap.servers": "broker.invalid:9092", "subscribe": "orders"}
SINK = {"kafka.bootstrap.servers": "broker.invalid:9092", "kafka.transactional.id": "copy", "topic": "out"}
NO_SPARK: Any = None
ONLY_VALUE = StructType([StructField("value", BinaryType())])


def batch(**columns: pa.Array | list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(values) for name, values in columns.items()})


def result(query: str, records: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for part in SqlTransform(query)(records) for row in part.to_pylist()]


# -- what may run


@pytest.mark.parametrize(
    "query",
    [
        "SELECT key, value FROM records",
        "FROM records",
        'SELECT * REPLACE (upper(decode(value)) AS value) FROM records WHERE "offset" % 2 = 0',
        "WITH p AS (SELECT key, decode(value)::json AS j FROM records) SELECT key, j->>'$.id' AS value FROM p",
        "SELECT unnest([key, value]) AS value FROM (SELECT * FROM records)",
        "SELECT list_sum(list_transform([1, 2], lambda x: x + 1))::varchar AS value FROM records",
        "SELECT strftime(date_trunc('day', timestamp), '%Y') || split_part(topic, '-', 1) AS value FROM records",
        "SELECT CASE WHEN key IS NULL THEN {'cause': 'no-key'} END AS error, value FROM records",
    ],
)
def test_a_query_that_looks_at_one_record_at_a_time_may_run(query: str) -> None:
    assert SqlTransform(query).check(COLUMNS).num_rows == 0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT count(*) AS value FROM records", "the aggregate function count_star"),
        ("SELECT value FROM records GROUP BY ALL", "GROUP BY"),
        ("SELECT DISTINCT value FROM records", "DISTINCT"),
        ("SELECT value FROM records ORDER BY key", "ORDER BY"),
        ("SELECT value FROM records LIMIT 1", "LIMIT"),
        ("SELECT value FROM records QUALIFY row_number() OVER () = 1", "QUALIFY"),
        ("SELECT lag(value) OVER () AS value FROM records", "a window function"),
        ("SELECT value FROM records TABLESAMPLE 10%", "a sample"),
        ("SELECT value FROM (SELECT * FROM records USING SAMPLE 10%)", "a sample"),
        ("SELECT value FROM records JOIN records other USING (key)", "a join"),
        ("SELECT value FROM records UNION ALL SELECT value FROM records", "UNION, INTERSECT or EXCEPT"),
        ("SELECT value FROM records WHERE key IN (SELECT key FROM records)", "a subquery as a value"),
        ("SELECT 'x' AS value", "a SELECT without FROM"),
        ("WITH one AS (SELECT 'x' AS value) SELECT value FROM one", "a SELECT without FROM"),
        ("SELECT json_group_array(value) AS value FROM records", "json_group_array, which uses the aggregate function"),
        ("SELECT value FROM records; SELECT value FROM records", "more than one statement"),
    ],
)
def test_what_depends_on_how_records_are_divided_into_batches_is_refused(query: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match="a query over each batch cannot have") as refused:
        SqlTransform(query).check(COLUMNS)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "expression",
    ["random()", "uuid()", "gen_random_uuid()", "now()", "today()", "current_date", "CURRENT_TIMESTAMP", "localtime",
     "age(timestamp)", "ago(INTERVAL 1 DAY)", "current_setting('threads')", "nextval('numbers')", "user",
     "list_transform([1], lambda x: x + random())"],
)  # fmt: skip
def test_clock_chance_and_session_are_refused(expression: str) -> None:
    with pytest.raises(ConfigurationError, match="a query over each batch cannot have"):
        SqlTransform(f"SELECT ({expression})::varchar AS value FROM records").check(COLUMNS)


def test_every_function_that_is_not_deterministic_in_duckdbs_catalogue_is_refused() -> None:
    connection = SqlTransform("")._connected()
    functions = sql_transform._functions(connection)
    volatile = [name for name, found in functions.items() if "VOLATILE" in found.stabilities]
    assert {"random", "uuid", "nextval", "setseed"} < set(volatile)
    for name in volatile:
        tree = sql_transform._tree(connection, f'SELECT "{name}"() AS value FROM records')
        assert refused(tree, functions, _no_macro) == f"the function {name}, which is not deterministic"


def _no_macro(text: str) -> Node:
    raise AssertionError(text)


# -- errors of a query, before anything is read


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT worth FROM records", 'Referenced column "worth" not found'),
        ("SELEC value FROM records", "syntax error"),
        ("SELECT offset AS value FROM records", 'write "offset" in quotation marks'),
        ("SELECT nothing(value) AS value FROM records", "nothing does not exist"),
        ("SELECT value.x AS value FROM records", "Cannot extract field 'x'"),
        ("COPY records TO '/tmp/x'", "it must be a SELECT"),
        ("SET threads = 4", "it must be a SELECT"),
        ("SELECT value FROM orders", "cannot have the table 'orders'"),
    ],
)
def test_a_query_that_is_wrong_is_refused_when_the_stream_is_made(query: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), sql=query)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT key FROM records", "the result of sql does not fit the sink: there is no column 'value'"),
        ("SELECT 1 AS value FROM records", "'value' has type int"),
        ("SELECT value, 1::bigint AS partition FROM records", "'partition' has type bigint"),
        ("SELECT value, key AS VALUE FROM records", "two columns 'value'"),
        ("SELECT value, topic AS headers FROM records", "'headers' has type string"),
    ],
)
def test_a_result_that_does_not_fit_the_sink_is_refused_when_the_stream_is_made(query: str, said: str) -> None:
    with pytest.raises(InvalidSchema) as refused:
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), sql=query)
    assert said in str(refused.value)


def test_without_the_option_topic_the_result_needs_a_column_topic() -> None:
    writer = TransactionalWriter({name: value for name, value in SINK.items() if name != "topic"})
    with pytest.raises(InvalidSchema, match="neither the option 'topic' nor a column 'topic'"):
        arrow_stream(NO_SPARK, SOURCE, writer, sql="SELECT value FROM records")


def test_a_query_sees_only_the_columns_of_the_schema() -> None:
    with pytest.raises(ConfigurationError, match='"key" not found'):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), sql="SELECT key FROM records", schema=ONLY_VALUE)


def test_a_query_and_a_function_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="there is a transform, too"):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), lambda rows: rows, sql="SELECT value FROM records")


def test_without_duckdb_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(ConfigurationError, match=r"pip install \"spark-kafka-eos\[sql\]\""):
        arrow_stream(NO_SPARK, SOURCE, TransactionalWriter(SINK), sql="SELECT value FROM records")


# -- what a query reaches


@pytest.mark.parametrize("call", ["read_text('{file}')", "read_csv('{file}')", "glob('{file}')", "'{file}'"])
def test_a_query_reads_no_file_even_if_it_were_not_refused(call: str, tmp_path: Path) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("value\nsecret\n")
    query = f"SELECT * FROM {call.format(file=file)}"
    with pytest.raises(ConfigurationError, match="cannot have"):
        SqlTransform(query).check(COLUMNS)
    with pytest.raises(duckdb.Error, match="disabled by configuration"):
        SqlTransform(query)(batch(value=[b"v"]))


@pytest.mark.parametrize("statement", ["SET enable_external_access = true", "SET threads = 4", "INSTALL httpfs"])
def test_what_locks_the_engine_up_cannot_be_changed(statement: str) -> None:
    with pytest.raises(duckdb.Error, match="locked|disabled by configuration"):
        SqlTransform("")._connected().execute(statement)


def test_a_query_sees_no_variable_of_python() -> None:
    hidden = batch(value=[b"v"])
    with pytest.raises(duckdb.CatalogException, match="hidden does not exist"):
        SqlTransform("SELECT value FROM hidden")(hidden)


# -- what it makes of a batch


def test_rows_keep_their_order_and_time_is_in_utc() -> None:
    count = 100_000
    at = pa.array([86_399_000_000] * count, pa.timestamp("us", tz="UTC"))
    records = pa.RecordBatch.from_pydict({"n": pa.array(range(count)), "timestamp": at})
    rows = result("SELECT n, strftime(timestamp, '%H') AS value FROM records WHERE n % 3 = 0", records)
    assert [row["n"] for row in rows] == list(range(0, count, 3))
    assert {row["value"] for row in rows} == {"23"}


def test_the_same_rows_give_the_same_result_however_they_are_divided() -> None:
    query = 'SELECT key, upper(decode(value)) AS value FROM records WHERE "offset" % 3 <> 0'
    records = batch(
        key=[b"%d" % n for n in range(1_000)], value=[b"v%d" % n for n in range(1_000)], offset=range(1_000)
    )
    parts = [row for at in range(0, 1_000, 70) for row in result(query, records.slice(at, 70))]
    assert result(query, records) == parts


def test_json_is_text_and_an_error_may_have_a_cause_alone() -> None:
    query = (
        "SELECT decode(value)::json AS value, CASE WHEN key IS NULL THEN {'cause': 'no-key'} END AS error FROM records"
    )
    [rows] = SqlTransform(query)(batch(key=[b"k", None], value=[b'{"a": 1}', b"2"]))
    assert rows.schema.field("value").type == pa.string()
    assert rows.schema.field("error").type == ERROR
    assert rows.to_pylist() == [
        {"value": '{"a": 1}', "error": None},
        {"value": "2", "error": {"cause": "no-key", "message": None, "schema_id": None}},
    ]


@pytest.mark.parametrize(
    ("expression", "in_arrow", "as_text"),
    [
        ("(2::uhugeint ** 127)::uhugeint", Decimal(-(2**127)), str(2**127)),
        ("(2::uhugeint ** 126)::uhugeint", Decimal(2**126), str(2**126)),
        ("'12:00:00+05'::timetz", time(12), "12:00:00+05"),
        ("'0101'::bit", b"\x04\xf5", "0101"),
    ],
)
def test_types_that_arrow_has_not_are_others_there_and_right_as_text(expression, in_arrow, as_text) -> None:
    query = f"SELECT {expression} AS value, ({expression})::varchar AS key FROM records"
    assert result(query, batch(value=[b"x"])) == [{"value": in_arrow, "key": as_text}]


def test_of_two_equal_keys_of_json_the_first_one_counts() -> None:
    query = "SELECT decode(value)::json->>'$.a' AS value FROM records"
    assert result(query, batch(value=[b'{"a": 1, "a": 2}'])) == [{"value": "1"}]


def test_a_query_that_leaves_nothing_returns_an_empty_batch() -> None:
    [rows] = SqlTransform("SELECT value FROM records WHERE false")(batch(value=[b"v"]))
    assert (rows.num_rows, rows.schema.names) == (0, ["value"])


def test_a_value_that_fails_the_query_is_an_invalid_row_and_is_not_in_the_message() -> None:
    transform = SqlTransform("SELECT decode(value)::int AS value FROM records")
    with pytest.raises(InvalidRow, match="TRY_CAST") as failed:
        transform(batch(value=[b"s3cret"]))
    assert "s3cret" not in str(failed.value)
    assert failed.value.committed == "nothing", "so the driver ends the query, and Spark does not repeat the task"


def test_a_transform_is_pickled_without_its_connection_and_works_after_a_fork() -> None:
    used = SqlTransform("SELECT value FROM records")
    used(batch(value=[b"v"]))
    copy = pickle.loads(pickle.dumps(used))
    assert copy._connection is None
    child = os.fork()
    if child == 0:
        os._exit(0 if copy(batch(value=[b"v"]))[0].num_rows == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_closed_transform_opens_again() -> None:
    transform = SqlTransform("SELECT value FROM records")
    transform.close()
    transform(batch(value=[b"v"]))
    transform.close()
    assert transform(batch(value=[b"v"]))[0].num_rows == 1


def test_one_thread_runs_it() -> None:
    [[threads]] = SqlTransform("")._connected().execute("SELECT current_setting('threads')").fetchall()
    assert threads == 1
