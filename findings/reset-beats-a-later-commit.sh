#!/usr/bin/env bash
# Kafka 4.4.0: a transaction commits without its offsets if somebody altered those of the group before the commit.
#
# Guess (confidence 75 %): when AlterConsumerGroupOffsets meets offsets that a transaction has sent and not yet
# committed, the transaction's win, since it commits last; unless it is refused, as stable reads of these offsets are.
# Seen: it is accepted, and the transaction's offsets are dropped when it commits, without an error for anybody. What
# counts is the place of the offsets in __consumer_offsets, not that of the commit: those of the transaction were
# written when it sent them, so they are the older ones.
# So output and offsets of one transaction don't come together: its output is there, and its input is read again (or, if
# the reset went forward, other input never), although the application sends its offsets in transactions as it should.
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
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
for created in admin.create_topics([NewTopic("input", 1, 1), NewTopic("output", 1, 1)]).values():
    created.result(30)
consumer = Consumer(servers | {"group.id": "g"})
producer = Producer(servers | {"transactional.id": "x"})
producer.init_transactions(30)


def begin(offset):
    producer.begin_transaction()
    producer.produce("output", b"of the records before %d" % offset)
    offsets = [TopicPartition("input", 0, offset)]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
    producer.flush(30)


def committed():
    asked = [ConsumerGroupTopicPartitions("g", [TopicPartition("input", 0)])]
    [answer] = admin.list_consumer_group_offsets(asked, require_stable=True).values()
    [at] = answer.result(30).topic_partitions
    return at.error.name() if at.error else at.offset


def stable():
    while (offset := committed()) == "UNSTABLE_OFFSET_COMMIT":  # the marker is written after the answer
        time.sleep(0.1)
    return offset


begin(5)
producer.commit_transaction(30)
before = stable()
begin(10)
during = committed()
wanted = [ConsumerGroupTopicPartitions("g", [TopicPartition("input", 0, 1)])]
[answer] = admin.alter_consumer_group_offsets(wanted).values()
[altered] = answer.result(30).topic_partitions
producer.commit_transaction(30)
after = stable()

reader = Consumer(servers | {"group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True})
reader.assign([TopicPartition("output", 0, 0)])
output = []
while not (message := reader.poll(30)).error():
    output.append(message.value())
print("confluent-kafka 2.16.1, Kafka 4.4.0")
print("offset after the first transaction, of 5:", before)
print("offset while the second one, of 10, is open:", during)
print("error of altering it to 1 meanwhile:", altered.error)
print("offset after the second one has committed:", after)
print("committed output:", output)
assert before == 5 and during == "UNSTABLE_OFFSET_COMMIT" and altered.error is None
assert output == [b"of the records before 5", b"of the records before 10"]
assert after == 1, "this has changed: it was 1"
PY
venv/bin/python look.py "$port"
