#!/usr/bin/env bash
# Kafka 4.4.0: of transactions with records of long ago, retention deletes the first one's records and keeps the others'.
#
# Guess (confidence 85 %): only the times of records decide when segments are rolled and deleted, not those of markers.
# So of records that are older than retention.ms, retention takes either all or none, whoever writes them.
# Seen: it takes all of them if they come without transactions. With transactions, the first marker, which has the time
# of the commit, is further from the first record than segment.ms, so a new segment begins with it. The segment before,
# with the records of the first transaction alone, is deleted at the next check. All others share a segment with a
# marker, which counts as its newest record: they stay for retention.ms from the last commit, a week by default.
# So who copies history in transactions loses the first one, which was committed and acknowledged, and sees that
# retention leaves the rest alone: the setting seems right, and the copy lacks its beginning.
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
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > look.py <<'PY'
import sys, time
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
MONTH_MS = 30 * 24 * 60 * 60 * 1000
GROUPS, EACH = "abcde", 3
long_ago = int(time.time() * 1000) - MONTH_MS


def offset(topic, spec):
    [found] = admin.list_offsets({TopicPartition(topic, 0): spec}, isolation_level=IsolationLevel.READ_COMMITTED).values()
    return found.result(30).offset


def write(topic, producer, group):
    for number in range(EACH):
        producer.produce(topic, f"{group}{number}", timestamp=long_ago + number)
    producer.flush(30)


def records(topic):
    reader = Consumer(servers | {"group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = []
    while not (message := reader.poll(30)).error():
        found.append(message.value().decode())
    reader.close()
    return found


for made in admin.create_topics([NewTopic(name, 1, 1) for name in ("plain", "transactions")]).values():
    made.result(30)  # with Kafka's defaults: retention.ms and segment.ms are a week each
plain = Producer(servers)
transactional = Producer(servers | {"transactional.id": "copy"})
transactional.init_transactions(30)
for group in GROUPS:
    write("plain", plain, group)
    transactional.begin_transaction()
    write("transactions", transactional, group)
    transactional.commit_transaction(30)
while offset("transactions", OffsetSpec.latest()) < len(GROUPS) * (EACH + 1):  # markers are written after the answer
    time.sleep(0.05)
time.sleep(10)  # twenty checks of retention
print("confluent-kafka 2.16.1, Kafka 4.4.0; 5 times 3 records of a month ago, a0 to e2; what is left after 10 s")
left = {topic: records(topic) for topic in ("plain", "transactions")}
print("without transactions:", left["plain"])
print("five transactions:", *left["transactions"])
expected = [f"{group}{number}" for group in GROUPS[1:] for number in range(EACH)]
assert left == {"plain": [], "transactions": expected}, "this has changed: only the first transaction's were deleted"
PY
venv/bin/python look.py "$port"
