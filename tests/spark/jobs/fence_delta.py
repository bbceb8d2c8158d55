"""Another driver, in a process of its own: fences a table of Delta Lake. Arguments: table, key, version."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_eos import DeltaParticipant

table, key, version = sys.argv[1:]
DeltaParticipant(SparkSession.builder.getOrCreate(), table, key=key).commit(None, None, after=int(version))
