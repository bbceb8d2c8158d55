# Databricks notebook source
# MAGIC %md
# MAGIC # From Kafka to Kafka on Databricks, exactly once
# MAGIC
# MAGIC Reads a topic, writes to others, and commits each micro-batch in one Kafka transaction. You need:
# MAGIC
# MAGIC - Compute with Databricks Runtime 17.3 LTS or later and **dedicated** access mode. Other runtimes, standard
# MAGIC   access mode and serverless: see `docs/databricks.md`.
# MAGIC - A Unity Catalog volume for the checkpoints.
# MAGIC - A secret scope with the keys `user` and `password` of a Kafka principal.
# MAGIC - The four topics below, with more than one partition each if you like.

# COMMAND ----------

# MAGIC %md
# MAGIC ## Install
# MAGIC
# MAGIC `%pip` installs on the driver and on all workers. Python must restart before it can import the package.

# COMMAND ----------

# MAGIC %pip install spark-kafka-eos

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Parameters

# COMMAND ----------

dbutils.widgets.text("bootstrap_servers", "broker-1:9093,broker-2:9093")
dbutils.widgets.text("security_protocol", "SASL_SSL")
dbutils.widgets.text("secret_scope", "kafka")
dbutils.widgets.text("volume", "/Volumes/main/default/kafka_eos")
dbutils.widgets.text("input_topic", "orders")
dbutils.widgets.text("foreachbatch_topic", "orders-by-foreachbatch")
dbutils.widgets.text("format_topic", "orders-by-format")
dbutils.widgets.text("migrated_topic", "orders-migrated")
dbutils.widgets.text("resolve", "")

# COMMAND ----------

import os

# Databricks renames the classes of Kafka's Java client. The built-in connector needs that name; kafka-eos takes both.
shaded = "kafkashaded." if "DATABRICKS_RUNTIME_VERSION" in os.environ else ""
login_module = f"{shaded}org.apache.kafka.common.security.plain.PlainLoginModule"

scope = dbutils.widgets.get("secret_scope")
user, password = dbutils.secrets.get(scope, "user"), dbutils.secrets.get(scope, "password")

kafka = {
    "kafka.bootstrap.servers": dbutils.widgets.get("bootstrap_servers"),
    "kafka.security.protocol": dbutils.widgets.get("security_protocol"),
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{login_module} required username="{user}" password="{password}";',
}
volume = dbutils.widgets.get("volume")
input_topic = dbutils.widgets.get("input_topic")

# COMMAND ----------

# MAGIC %md
# MAGIC Check network and login first. This prints the id of the Kafka cluster, or an error within seconds.

# COMMAND ----------

from spark_kafka_eos import cluster_id

cluster_id(kafka)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Sample records
# MAGIC
# MAGIC Skip this cell if the topic has records.

# COMMAND ----------

samples = spark.range(1000).selectExpr("cast(id % 7 as string) as key", "concat('order ', id) as value")
samples.write.format("kafka").options(**kafka, topic=input_topic).save()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Source and `foreachBatch`
# MAGIC
# MAGIC With large batches the executors append to the transaction. `trigger(availableNow=True)` processes what is there
# MAGIC and stops; serverless compute has no other trigger. The writer's option `checkpointLocation` is for standard
# MAGIC access mode and serverless, where the writer cannot ask Spark for it.

# COMMAND ----------

from spark_kafka_eos import ProgressListener, TransactionalWriter

source = kafka | {"subscribe": input_topic, "startingOffsets": "earliest"}
listener = ProgressListener(source)  # logs one line of JSON for each micro-batch, with the lag
spark.streams.addListener(listener)

checkpoint = f"{volume}/foreachbatch"
writer = TransactionalWriter(
    kafka
    | {
        "topic": dbutils.widgets.get("foreachbatch_topic"),
        "kafka.transactional.id": "databricks-foreachbatch",
        "checkpointLocation": checkpoint,
    }
)
query = (
    spark.readStream.format("kafka-eos")
    .options(**source)
    .load()
    .select("key", "value")
    .writeStream.foreachBatch(writer)
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Monitoring
# MAGIC
# MAGIC Spark's progress and the lag.

# COMMAND ----------

from spark_kafka_eos import offsets_behind_latest

print(query.lastProgress)
print(offsets_behind_latest(query.lastProgress))
spark.streams.removeListener(listener)
listener.close()

# COMMAND ----------

# MAGIC %md
# MAGIC The writer's report on the last micro-batch. In standard access mode and on serverless this is an error, because
# MAGIC the writer runs in another process: read the report inside your own `foreachBatch` function there.

# COMMAND ----------

writer.last_commit

# COMMAND ----------

# MAGIC %md
# MAGIC ## Source and `format("kafka-eos")`
# MAGIC
# MAGIC The same without a function. The driver appends. Preflight and commit run in processes without a Spark session;
# MAGIC they read the checkpoint through the path `/Volumes/…`.

# COMMAND ----------

query = (
    spark.readStream.format("kafka-eos")
    .options(**source)
    .load()
    .select("key", "value")
    .writeStream.format("kafka-eos")
    .options(**kafka, topic=dbutils.widgets.get("format_topic"))
    .option("kafka.transactional.id", "databricks-format")
    .option("checkpointLocation", f"{volume}/format")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
query.lastProgress

# COMMAND ----------

# MAGIC %md
# MAGIC All three topics have the same number of records, at the latest a moment after the queries have ended. Run both
# MAGIC queries again: the numbers stay the same, because each query continues where it ended.

# COMMAND ----------


def count(topic):
    return spark.read.format("kafka-eos").options(**kafka, subscribe=topic).load().count()


counts = {
    topic: count(topic)
    for topic in (input_topic, dbutils.widgets.get("foreachbatch_topic"), dbutils.widgets.get("format_topic"))
}
counts

# COMMAND ----------

# MAGIC %md
# MAGIC ## Migrate a query from `format("kafka")`
# MAGIC
# MAGIC This is the query as it was, with Spark's built-in source and sink. It has stopped between two micro-batches.

# COMMAND ----------

query = (
    spark.readStream.format("kafka")
    .options(**source)
    .load()
    .select("key", "value")
    .writeStream.format("kafka")
    .options(**kafka, topic=dbutils.widgets.get("migrated_topic"))
    .option("checkpointLocation", f"{volume}/migrated")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

# MAGIC %md
# MAGIC New records arrive. Write the samples again, if your topic has no others.

# COMMAND ----------

samples.write.format("kafka").options(**kafka, topic=input_topic).save()

# COMMAND ----------

# MAGIC %md
# MAGIC Change both formats, add a transactional id, and keep the checkpoint. The first run is refused
# MAGIC (`LedgerRefused`) and writes nothing: the ledger cannot show whether the batch is in the output. After a clean
# MAGIC stop it is not. Copy the word `write:none/…` from the message into the widget `resolve`, and run the cell
# MAGIC again. The word settles this batch only; later runs ignore it.

# COMMAND ----------

sink = kafka | {
    "topic": dbutils.widgets.get("migrated_topic"),
    "kafka.transactional.id": "databricks-migrated",
}
resolve = dbutils.widgets.get("resolve")
query = (
    spark.readStream.format("kafka-eos")
    .options(**source)
    .load()
    .select("key", "value")
    .writeStream.format("kafka-eos")
    .options(**sink, **({"resolve": resolve} if resolve else {}))
    .option("checkpointLocation", f"{volume}/migrated")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
