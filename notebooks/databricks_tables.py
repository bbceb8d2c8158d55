# Databricks notebook source
# MAGIC %md
# MAGIC # A topic and a Delta table on Databricks, both or neither
# MAGIC
# MAGIC Each micro-batch is written to a Kafka topic and to a table of Unity Catalog: both have its rows once, or
# MAGIC neither has.
# MAGIC
# MAGIC **This notebook was not run on Databricks.** What it calls was tested with Spark 4.1, Delta Lake 4.4 and
# MAGIC a table in a folder (`docs/tables.md`). Databricks has its own Delta, and Unity Catalog may refuse what
# MAGIC the table needs; the first cells show that before anything is written. You need:
# MAGIC
# MAGIC - Compute with Databricks Runtime 17.3 LTS or later and **dedicated** access mode.
# MAGIC - A catalog and a schema in which you may create a table, and a volume for the checkpoint.
# MAGIC - A secret scope with the keys `user` and `password` of a Kafka principal.
# MAGIC - The two topics below.

# COMMAND ----------

# MAGIC %pip install spark-kafka-eos

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

dbutils.widgets.text("bootstrap_servers", "broker-1:9093,broker-2:9093")
dbutils.widgets.text("security_protocol", "SASL_SSL")
dbutils.widgets.text("secret_scope", "kafka")
dbutils.widgets.text("volume", "/Volumes/main/shop/kafka_eos")
dbutils.widgets.text("table", "main.shop.bookings")
dbutils.widgets.text("input_topic", "bookings")
dbutils.widgets.text("output_topic", "bookings-seen")

# COMMAND ----------

import os

# Databricks renames the classes of Kafka's Java client; kafka-eos takes both names.
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
name = dbutils.widgets.get("table")
input_topic, output_topic = dbutils.widgets.get("input_topic"), dbutils.widgets.get("output_topic")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The table
# MAGIC
# MAGIC It must exist. `held()` reads the version and the token of this query from the table's log:
# MAGIC `TableVersion(version=0)` before the first start. If this cell fails, the table cannot take part; nothing was
# MAGIC written.

# COMMAND ----------

from spark_kafka_eos import DeltaParticipant

spark.sql(f"CREATE TABLE IF NOT EXISTS {name} (number BIGINT, value STRING) USING DELTA")
table = DeltaParticipant(spark, name, key="bookings")
table.held()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The query
# MAGIC
# MAGIC The table commits first, and its commit decides. The Kafka transaction is open meanwhile, so its timeout
# MAGIC must be longer than a commit of the table.

# COMMAND ----------

from pyspark.sql import functions as F

from spark_kafka_eos import TransactionalWriter

writer = TransactionalWriter(
    kafka
    | {
        "topic": output_topic,
        "kafka.transactional.id": "databricks-bookings",
        "kafka.transaction.timeout.ms": "300000",
    }
)


def both(batch, batch_id):
    with writer.transaction(batch, batch_id, participant=table) as transaction:
        transaction.write(batch.select("key", "value"))
        transaction.write_table(batch.select(F.col("offset").alias("number"), F.col("value").cast("string")))


query = (
    spark.readStream.format("kafka-eos")
    .options(**kafka, subscribe=input_topic, startingOffsets="earliest")
    .load()
    .writeStream.foreachBatch(both)
    .option("checkpointLocation", f"{dbutils.widgets.get('volume')}/bookings")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Compare the two
# MAGIC
# MAGIC Both have the same number, however often the query is killed and started again. `kafka-eos verify
# MAGIC --table` compares them row by row.

# COMMAND ----------

in_topic = spark.read.format("kafka-eos").options(**kafka, subscribe=output_topic).load().count()
in_topic, spark.table(name).count(), table.held()
