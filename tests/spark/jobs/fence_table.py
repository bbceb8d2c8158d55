"""Another driver, in a process of its own: fences a table. Arguments: class of the participant, table, key, version."""

import sys

from pyspark.sql import SparkSession

import spark_kafka_eos

participant, table, key, version = sys.argv[1:]
getattr(spark_kafka_eos, participant)(SparkSession.builder.getOrCreate(), table, key=key).commit(
    None, None, after=int(version)
)
