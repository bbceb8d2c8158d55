"""A process of its own that appends one record batch under an identity it was told; prints offset or error."""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.options import ClientOptions


def main(job: str) -> None:
    told = json.loads(job)
    transactional_id, producer_id, epoch = told["identity"]
    identity = ProducerIdentity(transactional_id=transactional_id, producer_id=producer_id, epoch=epoch)
    values = [value.encode() for value in told["values"]]
    batch = encode(pa.array([None] * len(values), pa.binary()), pa.array(values, pa.binary()), int(time.time() * 1000))
    stamp(batch, producer_id=producer_id, epoch=epoch, base_sequence=told["base_sequence"], transactional=True)
    host, port = told["bootstrap"].rsplit(":", 1)
    options = ClientOptions(bootstrap_servers=((host, int(port)),))
    with Cluster(options) as cluster, Appender(cluster, identity) as appender:
        try:
            appender.append(TopicPartition(*told["partition"]), batch, len(values), told["base_sequence"])
            (ack,) = appender.flush()
            print(json.dumps({"base_offset": ack.base_offset}))
        except KafkaEosError as error:
            print(json.dumps({"error": type(error).__name__, "what": error.what}))


if __name__ == "__main__":
    main(sys.argv[1])
