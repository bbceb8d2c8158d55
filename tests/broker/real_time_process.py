"""A process to be killed, paused and overtaken: copies a topic in real time, without Spark. Arguments: bootstrap, from,
to, run id, partitions, seconds of a micro-batch, milliseconds that a transaction may be open. It ends when another one
has taken the query."""

import sys
from dataclasses import replace

from spark_kafka_eos.appending.encode_settings import encode_settings
from spark_kafka_eos.errors import KafkaEosError, ProducerFenced
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.real_time import decide_in_real_time
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.micro_batch import MicroBatch, SourceRange
from spark_kafka_eos.options import WriteKind, sink_options, source_options
from spark_kafka_eos.real_time.driver import RealTimeDriver
from spark_kafka_eos.real_time.supervisor import Supervisor
from spark_kafka_eos.real_time.task import RealTimeTask, run
from spark_kafka_eos.transaction.shared import SharedTransaction

bootstrap, source, target, run_id, count, seconds, timeout_ms = sys.argv[1:]
servers = {"kafka.bootstrap.servers": bootstrap, "kafka.client.id": run_id}
sink = {"kafka.transactional.id": target, "topic": target, "kafka.transaction.timeout.ms": timeout_ms}
options = sink_options(servers | sink, WriteKind.FOREACH_BATCH)
read = replace(source_options(servers | {"subscribe": source}, streaming=True), columns=("key", "value"))
cluster = Cluster(options.client)
transaction = SharedTransaction(options, cluster, decide_in_real_time(options))
driver = RealTimeDriver(options, cluster, transaction, fail_on_data_loss=True)
settings = encode_settings(options, target, cluster)
beginning = {TopicPartition(source, number): 0 for number in range(int(count))}
batch = MicroBatch(
    query_id="query",
    batch_id=0,
    digest="digest",
    sources=(SourceRange(start=beginning, end=beginning),),
    run_id=run_id,
)


def run_task(buckets, seconds):
    task = RealTimeTask(
        buckets=tuple(buckets),
        source=read,
        client=options.client,
        settings=settings,
        group_id=options.group_id,
        mark=source_mark(options.transactional_id),
        seconds=seconds,
    )
    return run(task, lambda rows, _: rows)


def start(numbers):
    return driver.start(batch, 2, numbers)


while True:
    try:
        Supervisor(start, run_task, lambda: None, tasks=2, seconds=float(seconds), most_failures=3).run()
    except ProducerFenced as error:
        sys.exit(f"another process has the query: {error.what}")
    except KafkaEosError as error:  # as a query that is started again
        print(error, file=sys.stderr)
        transaction.start_over()
