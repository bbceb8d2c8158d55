#!/usr/bin/env bash
# Kafka 4.4.0: a topic that is made again loses records for one protocol of the consumer, and has some twice for the other.
#
# Guess (confidence 85 % for group.protocol=consumer): brokers and consumers know topics by their ids (KIP-516), so a
# consumer whose topic is deleted and made again under its name notices, and reads the new one from its beginning, once.
# Seen: neither does. Both get the new topic's id with their next metadata, and go on in it at the position that they
# had in the old one, without an error or a callback. With group.protocol=classic that is all: the records before that
# position are never read. With group.protocol=consumer, the coordinator compares ids, takes the partition away, and
# gives it back at the next heartbeat. By then there is no committed offset, so the consumer starts at the earliest one,
# and has the records after the old position a second time; or, if it has committed meanwhile, it goes on from there, and
# misses the records before, as classic consumers do.
# So ids in the protocol do not protect a consumer from another topic of the same name. Whoever keeps offsets must keep
# the topic's id with them, and compare.
#
# Needs Java 17 and mvn, and Python 3 for free ports. Installs kafka_2.13 4.4.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
broker=
trap '[ -z "$broker" ] || kill "$broker" 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
cd "$work"

cat > pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>f</groupId><artifactId>f</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
</dependencies></project>
POM
mvn --quiet --batch-mode dependency:copy-dependencies -DoutputDirectory=jars

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
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
group.initial.rebalance.delay.ms=0
# So that the records are there before the next heartbeat.
group.consumer.heartbeat.interval.ms=15000
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > Look.java <<'JAVA'
import java.time.Duration;
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Look {
    static String servers;

    static Map<String, Object> with(String... settings) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", servers));
        for (int i = 0; i < settings.length; i += 2) all.put(settings[i], settings[i + 1]);
        return all;
    }

    static void create(Admin admin, String topic, String prefix, int count) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        try (var producer = new KafkaProducer<>(with(), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) producer.send(new ProducerRecord<>(topic, prefix + i)).get();
        }
    }

    static List<String> run(Admin admin, String protocol, boolean commits) throws Exception {
        String topic = protocol + commits;
        create(admin, topic, "old", 5);
        var settings = with("group.id", topic, "group.protocol", protocol, "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int read = 0; read < 5; ) read += consumer.poll(Duration.ofMillis(100)).count();
            if (commits) consumer.commitSync();
            admin.deleteTopics(List.of(topic)).all().get();
            while (admin.listTopics().names().get().contains(topic)) Thread.sleep(50);
            create(admin, topic, "", 10);
            List<String> seen = new ArrayList<>();
            for (long end = System.currentTimeMillis() + 40_000; System.currentTimeMillis() < end; ) {
                var records = consumer.poll(Duration.ofMillis(100));
                records.forEach(record -> seen.add(record.value()));
                if (commits && !records.isEmpty()) consumer.commitSync();
            }
            return seen;
        }
    }

    static List<String> numbers(int from, int to) {
        return IntStream.range(from, to).mapToObj(String::valueOf).collect(Collectors.toList());
    }

    static void check(List<String> seen, List<String> expected) {
        if (!seen.equals(expected)) throw new AssertionError("this has changed: it was " + expected);
    }

    public static void main(String[] args) throws Exception {
        servers = "127.0.0.1:" + args[0];
        System.out.println("Kafka 4.4.0; five records were read, then the topic was made again, with the records 0 to 9");
        List<String> missed = numbers(5, 10), twice = new ArrayList<>(missed);
        twice.addAll(numbers(0, 10));
        try (Admin admin = Admin.create(with())) {
            for (String protocol : List.of("classic", "consumer")) for (boolean commits : List.of(false, true)) {
                List<String> seen = run(admin, protocol, commits);
                System.out.println(protocol + (commits ? ", commits: " : ", does not commit: ") + seen);
                check(seen, protocol.equals("consumer") && !commits ? twice : missed);
            }
        }
    }
}
JAVA
java -cp "jars/*" Look.java "$port" 2> client.log || { tail -20 client.log; exit 1; }
