#!/usr/bin/env bash
# Kafka 4.4.0: asked for transactions that run longer than a duration, brokers list those that have ended, too.
#
# Guess (confidence 85 %): ListTransactions with a duration (KIP-994) names what hangs: of two producers, one whose
# transaction is open and one that has committed, the first alone, once its transaction is that old. The Java client's
# documentation says "only the transactions that are running longer than the specified duration".
# Seen: what counts is the time since the last transaction of an id began, whether it has ended or not. So the one that
# was committed within milliseconds is listed, too, as soon as its beginning is that long ago, until the id begins the
# next one or expires, after a week.
# So an alert on a transaction that runs too long names every producer that has paused or gone, and the one that hangs
# is one of many. It takes the filter by state, Ongoing, beside that of the duration.
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
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
PROPERTIES
java -cp "jars/*" kafka.tools.StorageTool format --config server.properties \
  --cluster-id "$(java -cp 'jars/*' kafka.tools.StorageTool random-uuid 2>/dev/null)" > format.log 2>&1
java -Xmx512m -cp "jars/*" kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!

cat > Look.java <<'JAVA'
import java.util.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Look {
    static String servers;

    static KafkaProducer<String, String> send(String id) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "transactional.id", id);
        var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>("topic", id)).get();
        return producer;
    }

    static Set<String> listed(Admin admin, ListTransactionsOptions options) throws Exception {
        return admin.listTransactions(options).all().get().stream()
            .map(one -> one.transactionalId() + " " + one.state()).collect(Collectors.toCollection(TreeSet::new));
    }

    static ListTransactionsOptions longerThan(long milliseconds) {
        return new ListTransactionsOptions().filterOnDuration(milliseconds);
    }

    static void check(String what, Set<String> seen, Set<String> expected) {
        System.out.println(what + ": " + seen);
        if (!seen.equals(expected)) throw new AssertionError("this has changed: it was " + expected);
    }

    public static void main(String[] args) throws Exception {
        servers = "127.0.0.1:" + args[0];
        System.out.println("Kafka 4.4.0; one transaction was committed at once, the other one is open");
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("topic", 1, (short) 1))).all().get();
            var ended = send("ended");
            long from = System.currentTimeMillis();
            ended.commitTransaction();
            System.out.println("the commit took " + (System.currentTimeMillis() - from) + " ms");
            var open = send("open");
            Thread.sleep(6_000); // until both began more than 5 s ago
            check("longer than 5 s", listed(admin, longerThan(5_000)), Set.of("ended CompleteCommit", "open Ongoing"));
            var ongoing = longerThan(5_000).filterStates(Set.of(TransactionState.ONGOING));
            check("longer than 5 s, with the state Ongoing", listed(admin, ongoing), Set.of("open Ongoing"));
            check("longer than a minute", listed(admin, longerThan(60_000)), Set.of());
            open.abortTransaction();
            open.close();
            ended.close();
            Thread.sleep(2_000); // for what does not change, so nothing can be awaited
            var both = Set.of("ended CompleteCommit", "open CompleteAbort");
            check("longer than 5 s, when both have ended and are closed", listed(admin, longerThan(5_000)), both);
        }
    }
}
JAVA
java -cp "jars/*" Look.java "$port" 2> client.log || { tail -20 client.log; exit 1; }
