#!/usr/bin/env bash
# kafka-python 3.0.12: a producer that was fenced fences the one that took its place.
#
# Guess (confidence 85 %): a transactional producer whose transactional.id another one has taken over fails for good
# with its next call, whatever that is, and never disturbs the other one.
# Seen: so it is with commit_transaction(). But if the next call is send(), the broker answers INVALID_PRODUCER_EPOCH,
# and the client asks for a higher epoch, as after a timeout of its transaction. The coordinator refuses that with the
# same error, and the client begins anew without its producer ID, in the background. So it takes the transactional.id
# back: the open transaction of the other one is aborted, and its commit fails. librdkafka (confluent-kafka 2.16.1) does
# not do so.
# An application that was suspended and replaced thus stops its replacement when it wakes up. No record comes twice, but
# what the replacement has sent is lost unless it sends it again.
#
# Needs Python 3.11, Java 17 and mvn. Installs kafka-python 3.0.12, confluent-kafka 2.16.1 and kafka_2.13 4.4.0 in a
# temporary folder.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check kafka-python==3.0.12 confluent-kafka==2.16.1
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
import logging, sys, time
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

logging.disable()
server = f"127.0.0.1:{sys.argv[1]}"
servers = {"bootstrap.servers": server, "logger": logging.getLogger("librdkafka")}
admin = AdminClient(servers)
admin.list_topics(timeout=60)  # waits for the broker


class KafkaPython:
    def __init__(self, name):
        self._producer = KafkaProducer(bootstrap_servers=server, transactional_id=name)
        self._producer.init_transactions()
        self.begin, self.commit = self._producer.begin_transaction, self._producer.commit_transaction

    def send(self, topic, value):
        self._producer.send(topic, value).get(30)


class Librdkafka:
    def __init__(self, name):
        self._producer = confluent_kafka.Producer(servers | {"transactional.id": name})
        self._producer.init_transactions(30)
        self.begin, self.commit = self._producer.begin_transaction, self._producer.commit_transaction

    def send(self, topic, value):
        errors = []
        self._producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
        try:
            self._producer.flush(30)
        except SystemError as error:  # what a fatal error is wrapped in if a delivery is reported with it
            raise error.__cause__
        assert errors == [None]


def outcome(call, *args):
    try:
        call(*args)
    except Exception as error:
        return type(error).__name__
    return "done"


def read_committed(topic):
    reader = confluent_kafka.Consumer(
        servers | {"group.id": "r", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values = []
    while not (message := reader.poll(30)).error():
        values.append(message.value())
    return values


def run(client, topic, last_call):
    [created] = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    created.result(30)
    first = client(topic)
    first.begin()
    first.send(topic, b"of the first one")
    second = client(topic)
    second.begin()
    second.send(topic, b"of the second one")
    of_first = outcome(first.send, topic, b"late") if last_call == "send" else outcome(first.commit)
    time.sleep(3)
    of_second = outcome(second.commit)
    time.sleep(1)
    return of_first, of_second, read_committed(topic)


print("kafka-python 3.0.12, confluent-kafka 2.16.1, Kafka 4.4.0")
print("client, the fenced one's call: its outcome, that of the second one's commit, what is committed")
for client in (Librdkafka, KafkaPython):
    for last_call in ("commit", "send"):
        of_first, of_second, committed = run(client, f"{client.__name__}-{last_call}", last_call)
        print(f"{client.__name__}, {last_call}:", of_first, of_second, committed, flush=True)
        assert of_first != "done"
        if (client, last_call) == (KafkaPython, "send"):
            assert (of_second, committed) == ("ProducerFencedError", []), "this has changed: the second one was fenced"
        else:
            assert (of_second, committed) == ("done", [b"of the second one"])
PY
venv/bin/python look.py "$port"
