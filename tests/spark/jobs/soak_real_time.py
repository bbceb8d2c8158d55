"""A driver of the soak in real time: copies a topic, each partition to its own, until it is killed.

Arguments: bootstrap, from, to, checkpoint, how long a micro-batch lasts, and a file: when it appears, the query is
stopped and started again, and the file removed.
"""

import logging
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from spark_kafka_eos import TransactionalWriter, arrow_stream
from spark_kafka_eos.spark.stopping import stop_on_sigterm

bootstrap, source, target, checkpoint, long_batch, stop = sys.argv[1:]
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
logging.getLogger("py4j").setLevel(logging.WARNING)
spark = SparkSession.builder.appName("soak in real time").getOrCreate()
stop_on_sigterm(spark)
servers = {"kafka.bootstrap.servers": bootstrap}
reads = servers | {"subscribe": source, "startingOffsets": "earliest"}
writer = TransactionalWriter(servers | {"kafka.transactional.id": target, "topic": target})
stream = arrow_stream(spark, reads, writer, schema="value BINARY, partition INT", real_time=long_batch, buckets=2)
stream = stream.option("checkpointLocation", checkpoint)
is_stopped = True
while is_stopped:
    query = stream.start()
    is_stopped = False
    while not is_stopped and not query.awaitTermination(1):
        is_stopped = Path(stop).exists()
    if is_stopped:
        query.stop()
        Path(stop).unlink()
