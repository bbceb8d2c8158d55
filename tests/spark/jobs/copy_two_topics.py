"""A driver to be killed: copies two topics into one, each through a source of its own. Arguments: bootstrap, both
topics, the target, checkpoint, way, batch size of each source. With source evolution the sources have names."""

import sys

from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos import TransactionalWriter

bootstrap, first, second, target, checkpoint, way, size = sys.argv[1:]
spark = SparkSession.builder.appName("copy two").getOrCreate()
named = spark.conf.get("spark.sql.streaming.queryEvolution.enableSourceEvolution") == "true"


def source(topic: str, name: str) -> DataFrame:
    reader = spark.readStream.format("kafka-eos").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=size)
    return (reader.name(name) if named else reader).load().select("key", "value")


sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
records = source(first, "zebras").union(source(second, "antelopes"))
stream = records.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
stream.start().awaitTermination()
