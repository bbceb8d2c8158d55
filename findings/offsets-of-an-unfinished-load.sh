#!/usr/bin/env bash
# Kafka 4.4.0: after a kill, a broker answers OffsetFetch with offsets of long ago while it loads the group.
#
# Guess (confidence 95 %): until a coordinator has loaded a group, it answers COORDINATOR_LOAD_IN_PROGRESS, and after
# that the last committed offset. Nothing in between.
# Seen: offsets that were committed thousands of commits before, without an error, in growing order, for a second or
# more. The broker starts with the leaders it knew before the kill, begins to load, is fenced and leads again, and loads
# again; the end of the first load then makes the group active whose second load has just begun.
# A consumer that starts then reads everything since that offset once more; read_committed or not, and whether the
# offsets were committed in transactions or not.
#
# Needs Python 3.11, Java 17 and mvn. Installs confluent-kafka 2.16.1 and kafka_2.13 4.4.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill -9 "$broker" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
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
offsets.topic.num.partitions=1
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
start() { java -Xmx1g -cp "jars/*" kafka.Kafka server.properties >> broker.log 2>&1 & broker=$!; }

cat > look.py <<'PY'
import sys, time
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

what, port = sys.argv[1:]
PARTITIONS, COMMITS = 400, 3_000
servers = {"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0}
consumer = Consumer(servers | {"group.id": "g", "enable.auto.commit": False})
if what == "commit":
    admin = AdminClient(servers)
    admin.list_topics(timeout=60)  # waits for the broker
    [created] = admin.create_topics([NewTopic("t", PARTITIONS, 1)]).values()
    created.result(60)
    for number in range(1, COMMITS + 1):
        consumer.commit(offsets=[TopicPartition("t", n, number) for n in range(PARTITIONS)], asynchronous=False)
    sys.exit()
answers, end = [], time.monotonic() + 120
while COMMITS not in answers and time.monotonic() < end:
    try:
        [at] = consumer.committed([TopicPartition("t", 0)], timeout=1)
    except KafkaException:
        continue
    if at.error is None and at.offset not in answers:
        answers.append(at.offset)
old = [at for at in answers if 0 <= at < COMMITS]
print(f"confluent-kafka 2.16.1, Kafka 4.4.0; the last commit was {COMMITS}; answered {len(old)} older ones", old[:5], "…", old[-5:])
sys.exit(0 if old else 3)
PY
start
venv/bin/python look.py commit "$port"
for _ in 1 2 3 4 5 6 7 8 9 10; do # it depends on when the broker is fenced
  kill -9 "$broker"
  wait "$broker" 2>/dev/null || true
  start
  if venv/bin/python look.py look "$port"; then exit 0; fi
done
echo "this has changed: no old offset was answered after ten kills"
exit 1
