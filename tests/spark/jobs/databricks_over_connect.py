"""The Databricks notebook over Spark Connect, without its migration and with the error that it announces. Arguments:
its widgets as JSON, user, password, the built-in connector's jars."""

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
    try:
        run(cell, names)
    except RuntimeError as error:
        if cell.strip() != "writer.last_commit":
            raise
        print("no report:", error)
spark.stop()
