"""Registers `format("kafka-eos")`: Spark imports every module named `pyspark_*` and takes its `DefaultSource`.

Spark imports it in a process of its own when a session first meets a Python data source
(`pyspark.sql.worker.lookup_data_sources`), so nothing heavy may be imported here.
"""

from spark_kafka_eos.spark.datasource import KafkaEosDataSource as DefaultSource

__all__ = ["DefaultSource"]
