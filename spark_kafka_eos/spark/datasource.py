"""What `format("kafka-eos")` names: one data source that reads and writes, in batch and in streams.

Spark builds it anew in every short-lived planning process, so constructors here do no I/O and import nothing heavy: a
reader or a writer opens its connections when it is first asked for something.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.spark.worker import spare_the_collector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from spark_kafka_eos.options import SourceOptions


class KafkaEosDataSource(DataSource):
    """The `kafka-eos` format; options are those of Spark's built-in `kafka` format and the ones in `options.py`.

    Spark hands the options over with lower-case keys; unknown ones raise ConfigurationError at `load()`.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._frame = uuid.uuid4().hex  # Spark makes one for each load() and pickles it into that frame's plans

    @classmethod
    def name(cls) -> str:
        return "kafka-eos"

    def schema(self) -> StructType:
        from spark_kafka_eos.spark.schema import source_schema

        return source_schema(include_headers=self._source_options().include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_kafka_eos.spark.source import FilteringReader, KafkaEosReader

        options = self._source_options(schema, streaming=False)
        # Spark refuses a reader that takes filters unless it is configured to push them, so nobody else gets one.
        return FilteringReader(options, self._frame) if options.push_down_filters else KafkaEosReader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_kafka_eos.spark.source import KafkaEosStreamReader

        return KafkaEosStreamReader(self._source_options(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_kafka_eos.options import sink_options
        from spark_kafka_eos.spark.sink import KafkaEosBatchWriter

        if overwrite:
            raise ConfigurationError("mode", "a topic cannot be overwritten", action="Write with mode('append').")
        options = sink_options(self._shown(), default_transactional_id=f"kafka-eos-{uuid.uuid4()}")
        return KafkaEosBatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # `overwrite` stands for outputMode("complete"): as in the built-in sink, each batch appends the whole result.
        spare_the_collector()  # of two of Spark's Python workers in each micro-batch: one plans it, one commits it
        from spark_kafka_eos.options import sink_options
        from spark_kafka_eos.spark.sink import KafkaEosStreamWriter

        return KafkaEosStreamWriter(sink_options(self._shown()), schema)

    def _shown(self) -> Mapping[str, str]:
        """The options; what no one may see in a query plan is refused."""
        from spark_kafka_eos.options import refuse_plain_keys

        refuse_plain_keys(self.options)
        return self.options

    def _source_options(self, schema: StructType | None = None, *, streaming: bool | None = None) -> SourceOptions:
        """The checked options; `schema` is the one Spark will expect of the rows: ours, or a user's selection of it."""
        from spark_kafka_eos.options import source_options
        from spark_kafka_eos.spark.schema import selected

        options = source_options(self._shown(), streaming=streaming)
        if schema is None:
            return options
        columns, required = selected(schema, include_headers=options.include_headers)
        return replace(options, columns=columns, required=required)
