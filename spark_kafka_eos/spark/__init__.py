"""Spark: the data source, the sink and TransactionalWriter.

Of the other packages, only the demo, the checker, the listeners and `registry` import PySpark.

datasource.py source.py sink.py         `format("kafka-eos")`: readers and writers
sink_commit.py staged_message.py        the sink's commit, and what its tasks tell it
writer.py micro_batch_writer.py         TransactionalWriter, for foreachBatch; how it commits a micro-batch
encode_stage.py arrow_batches.py        encodes rows as record batches in Spark tasks; how many they get at once
arrow_stream.py                         `arrow_stream`: records go from read to encode without the JVM
arrow_columns.py                        what is decoded before its transform, and encoded after it
sql_transform.py sql_rules.py           SQL as its transform: DuckDB, and which queries may run
executor_append.py shuffled.py          appendMode=executors: its job, and the rows it shuffles
rows.py schema.py                       columns of the sink, columns of the source
delta.py iceberg.py                     a table of Delta Lake, or Apache Iceberg, that takes part in a batch
dead_letters.py                         `to_dead_letters` and `split_errors`, for users
stopping.py                             a stop in the middle of a batch, and SIGTERM
features.py                             what the installed PySpark can do
jvm.py                                  what only the JVM knows: the running query, its checkpoint, its stages
commit_log.py                           the log of the sink's commit
checkpoint.py offset_log.py plans.py    a micro-batch as Spark's checkpoint has it; without PySpark
plan_registry.py                        the plan in Spark's memory, which the source tells the sink
worker.py                               what the driver passes to Python workers, and their end
"""

from spark_kafka_eos.startup.deferred import defer_clients

defer_clients()  # before anything imports kafka-python's messages
