"""The Databricks notebook over Spark Connect, without its migration. Arguments: its widgets as JSON, user, password,
the built-in connector's jars. Ends with a line about the writer's last report."""

import json
import sys

from pyspark.sql import SparkSession

from tests.spark.test_databricks import Dbutils, cells, run

widgets, user, password, jars = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.jars", jars).getOrCreate()
names: dict[str, object] = {"spark": spark}
names["dbutils"] = Dbutils(json.loads(widgets), {("kafka", "user"): user, ("kafka", "password"): password}, names)
*before, _ = cells()
for cell in before:
    run(cell, names)
print("the last report:", names["writer"].last_commit)  # type: ignore[attr-defined]
spark.stop()
