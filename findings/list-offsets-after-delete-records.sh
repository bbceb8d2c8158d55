#!/usr/bin/env bash
# Kafka 4.4.0: after DeleteRecords, a look-up by time finds nothing although later segments have such records.
#
# Guess (confidence 90 %): ListOffsets by timestamp names the first record that is still there with the time or a later one.
# Seen: offset -1 ("none"). The broker takes the first segment whose largest timestamp is late enough. If the only such
# record of that segment lies below the log's start, it looks at no other segment.
# So offsetsForTimes seeks to the end, and whoever starts from a time skips what was asked for.
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
offsets.topic.replication.factor=1
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
[created] = admin.create_topics([NewTopic("t", 1, 1)]).values()
created.result(30)

DAY, T = 86_400_000, 1_600_000_000_000
producer = Producer(servers)
for days in (0, -10, 30):  # the third one is more than segment.ms (7 days) later: it begins a segment
    producer.produce("t", b"v", timestamp=T + days * DAY)
    producer.flush(30)
[deleted] = admin.delete_records([TopicPartition("t", 0, 1)]).values()
deleted.result(30)

consumer = Consumer(servers | {"group.id": "g"})
[by_time] = consumer.offsets_for_times([TopicPartition("t", 0, T - DAY)], timeout=30)
consumer.assign([TopicPartition("t", 0, 1)])
there = [consumer.poll(30) for _ in range(2)]
later = [(m.offset(), m.timestamp()[1]) for m in there if m.timestamp()[1] >= T - DAY]
print("confluent-kafka 2.16.1, Kafka 4.4.0")
print("records at or after the time:", later)
print("offset by time:", by_time.offset)
assert later == [(2, T + 30 * DAY)]
assert by_time.offset == -1, "this has changed: it was -1"
PY
venv/bin/python look.py "$port"
