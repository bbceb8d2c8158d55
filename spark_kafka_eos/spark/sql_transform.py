"""A SQL query as the transform of `arrow_stream`: DuckDB runs it over each Arrow batch, as the table `records`.

DuckDB runs inside the task's Python process, in one thread and in the records' order, in UTC. It reaches neither files
nor the network, loads no extension, and sees no Python variable; none of that can be set from within a query. A task
has a DuckDB of its own, opened after any fork.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spark_kafka_eos.dead_letters.headers import ERROR
from spark_kafka_eos.errors import ConfigurationError, InvalidRow
from spark_kafka_eos.spark.sql_rules import TABLE, Function, Node, refused
from spark_kafka_eos.startup.quickack import QuickAck

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": "1",
    "preserve_insertion_order": "true",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}
_INSTALL = 'Install it with pip install "spark-kafka-eos[sql]", on the driver and on the executors.'
_NO_SELECT = "Only SELECT statements can be serialized to json!"
_EACH_RECORD = (
    "A query looks at one record at a time, FROM records, and makes the same of it whenever it runs: Spark may run a "
    "task again, and how records are divided into batches is up to Kafka. Use DataFrames for the rest (docs/arrow.md)."
)


class SqlTransform(QuickAck):
    """From a batch of records to the batches of the query's result. Pickles without its connection."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._connection: DuckDBPyConnection | None = None

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_connection": None}

    def check(self, columns: pa.Schema) -> pa.RecordBatch:
        """The empty result for records with these columns. Raises ConfigurationError if the query is none that may
        run, or has an error that shows without records.
        """
        connection = self._connected()
        import duckdb

        statement = _tree(connection, self._query)
        if statement["error"]:
            raise _wrong(statement["error_message"].replace(_NO_SELECT, "it must be a SELECT"))
        if (what := refused(statement, _functions(connection), lambda text: _tree(connection, text))) is not None:
            raise ConfigurationError("sql", f"a query over each batch cannot have {what}", action=_EACH_RECORD)
        try:
            found_columns = self._table(_empty(columns)).schema
        except duckdb.Error as error:
            raise _wrong(str(error)) from None
        return _empty(found_columns)

    def __call__(self, records: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The result's batches, in the records' order. Raises InvalidRow if the query fails for one of them."""
        import duckdb

        try:
            result = self._table(records).combine_chunks()
        except (duckdb.DataError, duckdb.InvalidInputException) as error:
            # Its text quotes the value, and logs should not.
            raise InvalidRow(
                f"the sql of arrow_stream failed for a record ({type(error).__name__})",
                action="Use TRY_CAST, TRY(…) or CASE where a value may not fit, and make such a row a dead letter, or "
                "filter it out.",
            ) from None
        return result.to_batches() or [_empty(result.schema)]

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _table(self, records: pa.RecordBatch) -> pa.Table:
        connection = self._connected()
        connection.register(TABLE, records)
        try:
            return _plain(connection.sql(self._query).to_arrow_table())
        finally:
            connection.unregister(TABLE)

    def _connected(self) -> DuckDBPyConnection:
        if self._connection is None:
            try:
                import duckdb
            except ImportError:
                raise ConfigurationError("sql", "needs DuckDB, which is not installed", action=_INSTALL) from None
            self._connection = duckdb.connect(":memory:", config=_CONFIG)
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("SET lock_configuration = true")
        return self._connection


def _empty(columns: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in columns], schema=columns)


def _wrong(message: str) -> ConfigurationError:
    """An error of the query. DuckDB's text has lines, the last of which point into the query."""
    return ConfigurationError(
        "sql",
        message.partition("\n\nLINE")[0].strip(),
        action=f'Correct the query. The source\'s columns are in the table {TABLE}; write "offset" in quotation marks.',
    )


def _tree(connection: DuckDBPyConnection, text: str) -> Node:
    [[tree]] = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    node: dict[str, Any] = json.loads(tree)
    return node


def _functions(connection: DuckDBPyConnection) -> Mapping[str, Function]:
    functions: dict[str, Function] = {}
    query = "SELECT lower(function_name), function_type, stability, macro_definition FROM duckdb_functions()"
    for name, kind, stability, macro in connection.execute(query).fetchall():
        function = functions.setdefault(name, Function())
        function.kinds.add(kind)
        function.stabilities.add(stability or "")
        if kind == "macro" and macro:
            function.macros.append(macro)
    return functions


def _plain(table: pa.Table) -> pa.Table:
    """JSON as text, and an `error` that has only a cause as the sink's."""
    for number, field in enumerate(table.schema):
        changed: Callable[[pa.Array], pa.Array] | None = None
        if isinstance(field.type, pa.BaseExtensionType):
            changed = _storage
        elif field.name.lower() == "error" and _is_error(field.type):
            changed = _error
        if changed is not None:
            chunks = [changed(chunk) for chunk in table.column(number).chunks]
            kind = changed(pa.nulls(0, field.type)).type
            table = table.set_column(number, field.name, pa.chunked_array(chunks, kind))
    return table


def _storage(column: pa.ExtensionArray) -> pa.Array:
    return column.storage


def _is_error(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and "cause" in kind.names and set(kind.names) <= set(ERROR.names)


def _error(column: pa.StructArray) -> pa.StructArray:
    fields = dict(zip(column.type.names, column.flatten(), strict=True))
    children = [
        fields[field.name].cast(field.type) if field.name in fields else pa.nulls(len(column), field.type)
        for field in ERROR
    ]
    return pa.StructArray.from_arrays(children, fields=list(ERROR), mask=column.is_null())
