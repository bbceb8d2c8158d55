#!/usr/bin/env bash
# Kafka 4.4.0: after DeleteRecords, the end of a partition for readers of committed records lies before its beginning.
#
# Guess (confidence 90 %): the last stable offset, which is where a partition ends with read_committed, is never before
# the partition's first offset: when DeleteRecords moves that past the beginning of an open transaction, it moves, too.
# Seen: so it is if the first offset is that of a record batch. Inside a record batch of the open transaction, the last
# stable offset is that of the batch, of which the first records are deleted: the partition begins at 7 and ends at 4,
# until the transaction ends.
# So what is left to read at the beginning is a negative number, and what compares its position with the end may take
# the log for truncated. librdkafka's watermarks have the two offsets exchanged: the end is called low.
#
# Needs Python 3.11, Java 17 and mvn. Installs confluent-kafka 2.16.1, kafka-python 3.0.12 and kafka_2.13 4.4.0 in a
# temporary folder.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check confluent-kafka==2.16.1 kafka-python==3.0.12
cat > pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
</dependencies></project>
POM
mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=jars

free_port() { venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
port=$(free_port) controller=$(free_port)
cat > server.properties <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/data
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
offsets.topic.replication.factor=1
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import logging, sys, time
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonsPartition

logging.disable()
server = f"127.0.0.1:{sys.argv[1]}"
servers = {"bootstrap.servers": server, "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker


def offset(topic, spec, level=IsolationLevel.READ_COMMITTED):
    [found] = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=level).values()
    return found.result(30).offset


def bounds(topic):
    high_watermark = offset(topic, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    return offset(topic, OffsetSpec.earliest()), offset(topic, OffsetSpec.latest()), high_watermark


def open_transaction(topic, *, batches):
    """Offsets 0 to 3 are committed, and 4 to 8 are of an open transaction."""
    [created] = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    created.result(30)
    producer = Producer(servers | {"transactional.id": topic, "linger.ms": 100})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"committed")
    producer.commit_transaction(30)
    while bounds(topic)[1] < 4:  # the marker is written after the answer
        time.sleep(0.05)
    producer.begin_transaction()
    for _ in range(batches):
        for _ in range(5 // batches):
            producer.produce(topic, b"open")
        producer.flush(30)
    assert bounds(topic) == (0, 4, 9)
    return producer


print("confluent-kafka 2.16.1, kafka-python 3.0.12, Kafka 4.4.0; beginning, end for read_committed, high watermark")
for topic, batches in (("batch-of-each-record", 5), ("one-batch", 1)):
    producer = open_transaction(topic, batches=batches)
    [deleted] = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    deleted.result(30)
    time.sleep(2)  # for what does not follow, so nothing can be awaited
    during = bounds(topic)
    consumer = Consumer(servers | {"group.id": "w", "isolation.level": "read_committed"})
    watermarks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    of_python = KafkaConsumer(bootstrap_servers=server, isolation_level="read_committed")
    at = PythonsPartition(topic, 0)
    of_python.assign([at])
    of_python.seek_to_beginning(at)
    lag = of_python.end_offsets([at])[at] - of_python.position(at)
    of_python.close()
    producer.commit_transaction(30)
    while (after := bounds(topic)) != (7, 10, 10):  # the marker is written after the answer
        time.sleep(0.05)
    print(f"{topic}: after DeleteRecords to 7: {during}; librdkafka's low and high: {watermarks}, ", end="")
    print(f"left to read for kafka-python at the beginning: {lag}; after the commit: {after}")
    if topic == "one-batch":
        seen = during, watermarks, lag
        assert seen == ((7, 4, 9), (4, 7), -3), "this has changed: the end was before the beginning"
    else:
        assert (during, watermarks, lag) == ((7, 7, 9), (7, 7), 0)
PY
venv/bin/python look.py "$port"
