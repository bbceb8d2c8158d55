#!/usr/bin/env bash
# Kafka 4.4.0: a transaction's marker is written to a topic that was made after the transaction's records.
#
# Guess (confidence 80 %): of a transaction whose topic was deleted and made again while it was open, nothing reaches
# the new topic, which has another topic ID. The commit fails or leaves that topic out.
# Seen: the commit succeeds, and the new topic, to which nobody has produced, begins with the marker. The coordinator
# keeps the partitions of a transaction by name.
# So the first record of a new topic is at offset 1, and whoever takes offset 0 for unused or counts records by offsets
# is wrong. That the transaction's own records are gone with the old topic, the commit doesn't say.
#
# Needs Python 3.11, Java 17 and mvn. Installs confluent-kafka 2.16.1 and kafka_2.13 4.4.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check confluent-kafka==2.16.1
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
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import sys, time
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
consumer = Consumer(servers | {"group.id": "g", "isolation.level": "read_committed", "enable.partition.eof": True})


def create():
    [created] = admin.create_topics([NewTopic("t", 1, 1)]).values()
    created.result(30)
    time.sleep(2)
    [described] = admin.describe_topics(TopicCollection(["t"])).values()
    return str(described.result(30).topic_id)


old = create()
producer = Producer(servers | {"transactional.id": "x"})
producer.init_transactions(30)
producer.begin_transaction()
producer.produce("t", b"v")
producer.flush(30)
[deleted] = admin.delete_topics(["t"]).values()
deleted.result(30)
time.sleep(2)
new = create()
before = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)
producer.commit_transaction(30)
time.sleep(1)
after = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)
consumer.assign([TopicPartition("t", 0, 0)])
message = consumer.poll(30)
print("confluent-kafka 2.16.1, Kafka 4.4.0")
print("the new topic has another ID:", old != new)
print("begin and end of the new topic before the commit:", before)
print("begin and end of the new topic after the commit:", after)
print("what a consumer finds there:", message.error().name() if message.error() else message.value())
assert old != new and before == (0, 0)
assert message.error()
assert after == (0, 1), "this has changed: it was (0, 1)"
PY
venv/bin/python look.py "$port"
