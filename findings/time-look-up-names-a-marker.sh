#!/usr/bin/env bash
# Kafka 4.4.0: look-ups by time, and of the largest timestamp, answer with a transaction's marker, which no consumer gets.
#
# Guess (confidence 80 %): offsetsForTimes names the first record with that time or a later one, and "none" if there is
# no such record; MAX_TIMESTAMP names a record.
# Seen: markers count. They have the time at which the coordinator decided, whatever the times of the records are. In a
# topic to which transactions write records of long ago, as a backfill does, a look-up of a time after all records is
# answered with the first marker: a consumer that starts there gets records that are all too old, instead of none. And
# MAX_TIMESTAMP names a marker: there is nothing at that offset, and what comes next has another timestamp, if anything.
# So it is with LogAppendTime, where the marker is always the last one. isolation.level makes no difference, although a
# consumer that reads committed records never gets markers either.
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
offsets.topic.replication.factor=1
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import sys, time
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
in_2001, in_2020 = 1_000_000_000_000, 1_600_000_000_000
LEVELS = {"read_uncommitted": IsolationLevel.READ_UNCOMMITTED, "read_committed": IsolationLevel.READ_COMMITTED}


def transact(topic, *times):
    producer = Producer(servers | {"transactional.id": topic})
    producer.init_transactions(30)
    for timestamp in times:
        before = end(topic)
        producer.begin_transaction()
        producer.produce(topic, b"record", timestamp=timestamp)
        producer.commit_transaction(30)
        while end(topic) < before + 2:  # the marker is written after the answer
            time.sleep(0.05)


def offset(topic, spec, level=IsolationLevel.READ_UNCOMMITTED):
    [found] = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=level).values()
    return found.result(30)


def end(topic):
    return offset(topic, OffsetSpec.latest()).offset


def records(topic, start):
    reader = Consumer(servers | {"group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, start)])
    found = []
    while not (message := reader.poll(30)).error():
        found.append((message.offset(), message.timestamp()[1]))
    reader.close()
    return found


topics = {"created": {"retention.ms": "-1"}, "appended": {"message.timestamp.type": "LogAppendTime"}}
for made in admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in topics.items()]).values():
    made.result(30)
transact("created", in_2001, in_2001 + 1)
transact("appended", 0, 0)
print("confluent-kafka 2.16.1, Kafka 4.4.0")
print("topic of records of 2001, by offset and timestamp:", records("created", 0))
for name, level in LEVELS.items():
    later = offset("created", OffsetSpec.for_timestamp(in_2020), level).offset
    newest = offset("created", OffsetSpec.max_timestamp(), level).offset
    appended = offset("appended", OffsetSpec.max_timestamp(), level).offset
    print(f"{name}: first of 2020 or later: {later}, where a consumer gets {records('created', later)};")
    print(f"  largest timestamp: {newest}, with LogAppendTime {appended}; the records there: 0 and 2")
    assert (later, newest, appended) == (1, 3, 3), "this has changed: markers, at 1 and 3, were named"
consumer = Consumer(servers | {"group.id": "c", "isolation.level": "read_committed"})
[found] = consumer.offsets_for_times([TopicPartition("created", 0, in_2020)], 30)
consumer.close()
print("offsets_for_times of a consumer of committed records:", found.offset)
assert found.offset == 1, "this has changed: a marker was named"
PY
venv/bin/python look.py "$port"
