import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * A record as Apicurio's own serializer for Avro writes it, with each of some settings: a line of JSON each, with
 * headers and value in hexadecimal.
 *
 * Arguments: the URL of Apicurio's own API, the topic, the schema, and for each line its settings, as "a=b c=d".
 */
final class ApicurioRecords {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    Schema schema = new Schema.Parser().parse(arguments[2]);
    for (int line = 3; line < arguments.length; line++) {
      Map<String, Object> settings = new HashMap<>();
      settings.put("apicurio.registry.url", arguments[0]);
      settings.put("apicurio.registry.auto-register", "true");
      for (String setting : arguments[line].split(" ")) {
        if (!setting.isEmpty()) {
          settings.put(setting.split("=")[0], setting.split("=")[1]);
        }
      }
      GenericRecord record = new GenericData.Record(schema);
      record.put("by", null);
      record.put("cents", 1234L);
      RecordHeaders headers = new RecordHeaders();
      try (AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>()) {
        serializer.configure(settings, false);
        ObjectNode row = JSON.createObjectNode();
        row.put("value", HexFormat.of().formatHex(serializer.serialize(arguments[1], headers, record)));
        ObjectNode named = row.putObject("headers");
        for (Header header : headers) {
          named.put(header.key(), HexFormat.of().formatHex(header.value()));
        }
        System.out.println(JSON.writeValueAsString(row));
      }
    }
  }
}
