#!/usr/bin/env bash
# Kafka 4.4.0: retention deletes records of a transaction that is still open, which then commits with the rest.
#
# Guess (confidence 85 %): retention leaves alone what is not below the last stable offset, as compaction does: before
# that, nobody who reads read_committed can have read it.
# Seen: if their timestamps are older than retention.ms, the records of the open transaction are deleted, and log start
# and last stable offset move past them. The commit succeeds, and of the transaction only the other records are there. A
# read_committed consumer that has waited at the beginning all the time gets these alone, without an error if it resets
# to earliest, as if they were the whole transaction.
# So a transaction that copies history with its times, to a topic with the default retention of a week, loses whatever
# retention meets before the commit. Plain records could at least be read since they were written.
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
log.retention.check.interval.ms=1000
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import sys, time
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
[created] = admin.create_topics([NewTopic("t", 1, 1)]).values()
created.result(30)
settings = {"group.id": "g", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
consumer = Consumer(servers | settings)
consumer.assign([TopicPartition("t", 0, 0)])
MONTH = 30 * 86_400_000
producer = Producer(servers | {"transactional.id": "x", "transaction.timeout.ms": 300_000})
producer.init_transactions(30)
producer.begin_transaction()
for n in range(3):
    producer.produce("t", b"old%d" % n, timestamp=int(time.time() * 1000) - MONTH)
producer.flush(30)
open_since, seen, start = time.monotonic(), [], 0
while start == 0 and time.monotonic() < open_since + 120:  # a broker looks for the first time after 30 seconds
    seen += consumer.consume(10, timeout=1)
    start, stable = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30)
for n in range(3):
    producer.produce("t", b"new%d" % n)
producer.flush(30)
producer.commit_transaction(30)
end = time.monotonic() + 15
while time.monotonic() < end:
    seen += consumer.consume(10, timeout=1)
print("confluent-kafka 2.16.1, Kafka 4.4.0")
print("written in one transaction, which has committed: old0 old1 old2 new0 new1 new2")
print("log start and last stable offset while it was open:", start, stable)
print("read, from before the transaction on:", *[message.error() or message.value().decode() for message in seen])
assert (start, stable) == (3, 3), "this has changed: both were 3"
assert [message.value() for message in seen if not message.error()] == [b"new0", b"new1", b"new2"]
PY
venv/bin/python look.py "$port"
