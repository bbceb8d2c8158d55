"""A driver to be killed: copies a topic of numbers with each way to write, and puts every tenth one aside. Arguments:
bootstrap, from, to, the dead letters' topic, checkpoint, way, batch size. In the ways `arrow-driver` and
`arrow-executors`, which have a function, tasks fail once; `sql-driver` and `sql-executors` are arrow_stream's, too."""

import sys

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter, arrow_stream, to_dead_letters

KIND = pa.struct([("cause", pa.string()), ("message", pa.string()), ("schema_id", pa.int32())])

SQL = """
    SELECT value, CASE WHEN decode(value)::INTEGER % 10 = 0
        THEN {'cause': 'tenth', 'message': '', 'schema_id': 0::INTEGER} END AS error
    FROM records
"""


def tenth_aside(rows: pa.RecordBatch) -> pa.RecordBatch:
    context = TaskContext.get()
    assert context is not None
    if context.attemptNumber() == context.partitionId() == 0:
        raise OSError("the first attempt fails")
    causes = [{"cause": "tenth"} if int(value.as_py()) % 10 == 0 else None for value in rows["value"]]
    return pa.RecordBatch.from_pydict({"value": rows["value"], "error": pa.array(causes, KIND)})


bootstrap, source, target, dead, checkpoint, way, size = sys.argv[1:]
spark = SparkSession.builder.appName("set aside").getOrCreate()
sink = {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"copy-{target}", "topic": target}
sink |= {"deadLetterTopic": dead, "maxDeadLetters": "11%"}
reads = {"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"}
reads |= {"maxOffsetsPerTrigger": size}
records = spark.readStream.format("kafka-eos").options(**reads).load()
tenth = F.struct(F.lit("tenth").alias("cause"), F.lit("").alias("message"), F.lit(0).alias("schema_id"))
number = F.col("value").cast("string").cast("int")
decoded = F.struct(number.alias("value"), F.when(number % 10 == 0, tenth).alias("error"))
rows = to_dead_letters(records.withColumn("decoded", decoded), "decoded", value=F.col("decoded.value").cast("string"))
if way == "sink":
    stream = rows.writeStream.format("kafka-eos").options(**sink)
else:
    path, _, mode = way.rpartition("-")
    writer = TransactionalWriter(sink | {"appendMode": mode})
    if path:
        how = {"sql": SQL} if path == "sql" else {"transform": tenth_aside}
        stream = arrow_stream(spark, reads, writer, **how)
    else:
        stream = rows.writeStream.foreachBatch(writer)
stream.trigger(availableNow=True).option("checkpointLocation", checkpoint).start().awaitTermination()
