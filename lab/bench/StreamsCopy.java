// Copies a topic to another one with Kafka Streams, exactly once, until it is ended.
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

public class StreamsCopy {
    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", arguments[4]);
        settings.put("state.dir", arguments[5]);
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.ByteArray().getClass());
        settings.put("default.value.serde", Serdes.ByteArray().getClass());
        StreamsBuilder builder = new StreamsBuilder();
        builder.<byte[], byte[]>stream(arguments[1]).to(arguments[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
