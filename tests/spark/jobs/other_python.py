"""Reads a topic while the driver's JVM has another Python for data sources. Arguments: bootstrap, topic.

Prints one line of JSON: the error of the first try, and how many rows there were after the format was registered.
"""

import json
import sys

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_kafka_eos import KafkaEosDataSource

bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
reader = spark.read.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
try:
    first = f"{reader.load().count()} rows"
except (PySparkException, Py4JJavaError) as error:
    first = str(error)
spark.dataSource.register(KafkaEosDataSource)
print(json.dumps([first, reader.load().count()]))
spark.stop()
