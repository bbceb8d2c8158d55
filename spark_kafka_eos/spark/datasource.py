"""The data source `format("kafka-eos")`, which reads and writes, in batches and in streams.

Spark creates it in each Python worker that plans or commits, so constructors do no I/O and import nothing heavy.
Readers and writers open their connections when they first need them; only `writer` and `streamWriter` run the
preflight, because nothing else of ours runs before a write's tasks.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from spark_kafka_eos.errors import ConfigurationError, errors_of_source
from spark_kafka_eos.spark.features import DataSource, require_packages
from spark_kafka_eos.startup.forked import begin_fork_server
from spark_kafka_eos.startup.frozen import freeze_gc

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
    """The `kafka-eos` format. `spark_kafka_eos.options.table` lists its options.

    Spark passes the options with lower-case keys; an unknown option raises ConfigurationError at `load()`.
    """

    # Spark plans a write with a new data source, and commits a micro-batch with a pickled one (pyspark.sql.worker's
    # write_into_data_source and python_streaming_sink_runner).
    _plans = True

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_plans": False}

    def __init__(self, options: dict[str, str]) -> None:
        require_packages()
        super().__init__(options)
        begin_fork_server()

    @classmethod
    def name(cls) -> str:
        return "kafka-eos"

    def schema(self) -> StructType:
        from spark_kafka_eos.spark.schema import ranges_schema, source_schema

        options = self._source_options()
        if options.rows != "records":
            return ranges_schema()
        return source_schema(include_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        from spark_kafka_eos.spark.source import KafkaEosReader

        return KafkaEosReader(self._source_options(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from spark_kafka_eos.spark.source import KafkaEosStreamReader

        return KafkaEosStreamReader(self._source_options(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from spark_kafka_eos.options import WriteKind, sink_options
        from spark_kafka_eos.spark.sink import KafkaEosBatchWriter

        if overwrite:
            raise ConfigurationError("mode", "a topic cannot be overwritten", action="Write with mode('append').")
        random_id = f"kafka-eos-{uuid.uuid4()}"
        options = sink_options(self._checked_options(), WriteKind.BATCH, default_transactional_id=random_id)
        writer = KafkaEosBatchWriter(options, schema)
        writer.check()
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        # `overwrite` means outputMode("complete"): as in the built-in sink, each batch appends the whole result.
        freeze_gc()  # in the two Python workers that plan and commit each micro-batch
        from spark_kafka_eos.options import WriteKind, sink_options
        from spark_kafka_eos.spark.sink import KafkaEosStreamWriter

        writer = KafkaEosStreamWriter(sink_options(self._checked_options(), WriteKind.STREAM), schema)
        if self._plans:
            writer.check()
        return writer

    def _checked_options(self) -> Mapping[str, str]:
        """The options. Raises ConfigurationError for a secret that query plans would show."""
        from spark_kafka_eos.options import refuse_plain_keys

        refuse_plain_keys(self.options)
        return self.options

    def _source_options(self, schema: StructType | None = None, *, streaming: bool | None = None) -> SourceOptions:
        """The validated options. `schema` is what Spark expects of the rows: the source's, or the user's selection of
        it.
        """
        from spark_kafka_eos.options import source_options
        from spark_kafka_eos.spark.schema import check_ranges_schema, selecting

        with errors_of_source():
            options = source_options(self._checked_options(), streaming=streaming)
            if schema is None:
                return options
            if options.rows != "records":
                check_ranges_schema(schema)
                return options
            return selecting(options, schema)
