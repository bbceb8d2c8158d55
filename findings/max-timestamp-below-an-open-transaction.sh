#!/usr/bin/env bash
# Kafka 4.4.0: with read_committed, ListOffsets with MAX_TIMESTAMP answers "none" while a transaction is open.
#
# Guess (confidence 95 %): with READ_COMMITTED, OffsetSpec.max_timestamp() names the newest record below the last stable
# offset, as OffsetSpec.latest() names the end below it.
# Seen: offset -1 and timestamp -1, without an error, as for an empty partition, if the newest timestamp of the
# partition is that of the open transaction, however many committed records there are. The broker looks for the newest
# record of all and drops it if it is not below the last stable offset; it looks for no other one. After the commit, it
# names the marker, which nobody reads and whose time is the broker's.
# So whoever asks how fresh a topic is hears "empty" or the time of a marker. With steady transactions, mostly these.
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
from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

servers = {"bootstrap.servers": f"127.0.0.1:{sys.argv[1]}", "log_level": 0}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker
[created] = admin.create_topics([NewTopic("t", 1, 1)]).values()
created.result(30)


def look(spec):
    [answer] = admin.list_offsets({TopicPartition("t", 0): spec}, isolation_level=IsolationLevel.READ_COMMITTED).values()
    return answer.result(30).offset, answer.result(30).timestamp


T = 1_600_000_000_000
producer = Producer(servers)
for n in range(1000):
    producer.produce("t", b"v", timestamp=T + n)
producer.flush(30)
before = look(OffsetSpec.max_timestamp())
transactional = Producer(servers | {"transactional.id": "x"})
transactional.init_transactions(30)
transactional.begin_transaction()
transactional.produce("t", b"v", timestamp=T + 1000)
transactional.flush(30)
end, during = look(OffsetSpec.latest()), look(OffsetSpec.max_timestamp())
transactional.commit_transaction(30)
while look(OffsetSpec.latest())[0] < 1002:  # the marker is written after the answer
    time.sleep(0.1)
after = look(OffsetSpec.max_timestamp())
print("confluent-kafka 2.16.1, Kafka 4.4.0; offset and timestamp with read_committed:")
print("newest record, before the transaction:", before)
print("end, while it is open:", end)
print("newest record, while it is open:", during)
print("newest record, after its commit:", after, "although it is", (1000, T + 1000))
assert before == (999, T + 999)
assert end[0] == 1000
assert during == (-1, -1), "this has changed: it was none"
assert after[0] == 1001 and after[1] > T + 1000, "this has changed: it was the marker"
PY
venv/bin/python look.py "$port"
