"""A driver to be killed: copies a topic of numbers with each way to write, and puts every tenth one aside. Arguments:
bootstrap, from, to, the dead letters' topic, checkpoint, way, batch size."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter, aside

bootstrap, source, target, dead, checkpoint, way, size = sys.argv[1:]
spark = SparkSession.builder.appName("set aside").getOrCreate()
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
sink |= {"deadLetterTopic": dead, "maxDeadLetters": "11%"}
reads = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
records = spark.readStream.format("kafka-eos").options(**reads, maxOffsetsPerTrigger=size).load()
tenth = F.struct(F.lit("tenth").alias("cause"), F.lit("").alias("message"), F.lit(0).alias("schema_id"))
number = F.col("value").cast("string").cast("int")
decoded = F.struct(number.alias("value"), F.when(number % 10 == 0, tenth).alias("error"))
rows = aside(records.withColumn("decoded", decoded), "decoded", value=F.col("decoded.value").cast("string"))
stream = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", checkpoint)
if way == "sink":
    stream = stream.format("kafka-eos").options(**sink)
else:
    stream = stream.foreachBatch(TransactionalWriter(sink | {"appendMode": way}))
stream.start().awaitTermination()
