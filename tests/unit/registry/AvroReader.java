import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.avro.Conversion;
import org.apache.avro.Conversions;
import org.apache.avro.LogicalType;
import org.apache.avro.LogicalTypes;
import org.apache.avro.Resolver;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.Decoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.ResolvingDecoder;

/**
 * What Avro's own implementation makes of records: a line of JSON with writer, reader and bodies in, one with the
 * values out.
 *
 * Avro itself decides how the schemas resolve ({@link Resolver}). Its actions are walked here, because they know both
 * types of each leaf: a value whose logical type changed is given as what was written. That the walk reads what
 * {@link GenericDatumReader} reads, as raw numbers, is checked for each record.
 */
final class AvroReader {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final GenericData RAW = new GenericData();
  private static final GenericData CONVERTED = new GenericData();
  private static final Map<String, Long> NANOSECONDS = Map.of(
      "time-millis", 1_000_000L, "time-micros", 1_000L, "timestamp-nanos", 1L, "local-timestamp-nanos", 1L);

  static {
    RAW.setFastReaderEnabled(false);
    for (Conversion<?> conversion : List.of(
        new Conversions.DecimalConversion(), new Conversions.UUIDConversion(), new TimeConversions.DateConversion(),
        new TimeConversions.TimestampMillisConversion(), new TimeConversions.TimestampMicrosConversion(),
        new TimeConversions.LocalTimestampMillisConversion(), new TimeConversions.LocalTimestampMicrosConversion())) {
      CONVERTED.addLogicalTypeConversion(conversion);
    }
  }

  public static void main(String[] arguments) throws IOException {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      out.flush();
    }
  }

  private static ObjectNode answer(JsonNode question) {
    ObjectNode answer = JSON.createObjectNode();
    ArrayNode values = answer.putArray("values");
    try {
      Schema reader = schema(question.get("reader"));
      Schema written = schema(question.get("writer"));
      Schema writer = Schema.applyAliases(written, reader);
      keepLogicalTypes(written, writer);
      Resolver.Action action = Resolver.resolve(writer, reader, RAW);
      Differences differences = new Differences();
      differences.of(action);
      answer.set("changed", JSON.valueToTree(differences.changed));
      answer.put("renamed", differences.renamed);
      answer.put("refused", differences.refused);
      for (JsonNode body : question.get("bodies")) {
        values.add(value(writer, reader, action, HexFormat.of().parseHex(body.asText())));
      }
    } catch (RuntimeException error) {
      answer.put("error", error.toString());
    }
    return answer;
  }

  private static Schema schema(JsonNode tree) {
    return new Schema.Parser().parse(tree.toString());
  }

  /** A fixed that has got its reader's name has lost its logical type. */
  private static void keepLogicalTypes(Schema from, Schema to) {
    switch (from.getType()) {
      case FIXED -> {
        if (from.getLogicalType() != null && to.getLogicalType() == null) {
          from.getLogicalType().addToSchema(to);
        }
      }
      case RECORD -> {
        for (int i = 0; i < from.getFields().size(); i++) {
          keepLogicalTypes(from.getFields().get(i).schema(), to.getFields().get(i).schema());
        }
      }
      case UNION -> {
        for (int i = 0; i < from.getTypes().size(); i++) {
          keepLogicalTypes(from.getTypes().get(i), to.getTypes().get(i));
        }
      }
      case ARRAY -> keepLogicalTypes(from.getElementType(), to.getElementType());
      case MAP -> keepLogicalTypes(from.getValueType(), to.getValueType());
      default -> { }
    }
  }

  private static JsonNode value(Schema writer, Schema reader, Resolver.Action action, byte[] body) {
    ObjectNode value = JSON.createObjectNode();
    String read;
    try {
      GenericDatumReader<Object> own = new BranchReader(writer, reader);
      read = json(reader, own.read(null, decoder(body)), RAW).toString();
    } catch (RuntimeException | IOException error) {
      return value.put("error", error.toString());
    }
    try {
      String walked = new Walk(decoder(body), false).read(action).toString();
      if (!walked.equals(read)) {
        return value.put("broken", "Avro reads " + read + " and the walk " + walked);
      }
      value.set("is", new Walk(decoder(body), true).read(action));
    } catch (RuntimeException | IOException error) {
      return value.put("broken", "Avro reads " + read + " and the walk fails: " + error);
    }
    return value;
  }

  private static BinaryDecoder decoder(byte[] body) {
    return DecoderFactory.get().binaryDecoder(body, null);
  }

  /** The branch of a union, and its value. */
  private record Branch(int number, Object value) {}

  /** Avro's reader, which also tells the branches of unions. */
  private static final class BranchReader extends GenericDatumReader<Object> {
    BranchReader(Schema writer, Schema reader) {
      super(writer, reader, RAW);
    }

    @Override
    protected Object readWithoutConversion(Object old, Schema expected, ResolvingDecoder in) throws IOException {
      if (expected.getType() != Schema.Type.UNION) {
        return super.readWithoutConversion(old, expected, in);
      }
      int number = in.readIndex();
      return new Branch(number, read(null, expected.getTypes().get(number), in));
    }
  }

  /**
   * The pairs of types that differ, whether a record is read as one of another name, and whether a part that a record
   * need not have cannot be read.
   */
  private static final class Differences {
    final Set<List<String>> changed = new LinkedHashSet<>();
    boolean renamed;
    boolean refused;

    void of(Resolver.Action action) {
      if (action instanceof Resolver.Container container) {
        of(container.elementAction);
      } else if (action instanceof Resolver.RecordAdjust record) {
        renamed |= !record.writer.getName().equals(record.reader.getName());
        for (Resolver.Action field : record.fieldActions) {
          of(field);
        }
      } else if (action instanceof Resolver.WriterUnion union) {
        refused |= Arrays.stream(union.actions).allMatch(branch -> branch instanceof Resolver.ErrorAction);
        for (Resolver.Action branch : union.actions) {
          if (!(branch instanceof Resolver.ErrorAction)) {
            of(branch);
          }
        }
      } else if (action instanceof Resolver.ErrorAction) {
        refused = true;
      } else if (action instanceof Resolver.ReaderUnion union) {
        of(union.actualAction);
      } else if (action instanceof Resolver.DoNothing || action instanceof Resolver.Promote) {
        String written = name(action.writer), wanted = name(action.reader);
        if (!written.equals(wanted)) {
          changed.add(List.of(written, wanted));
        }
      }
    }

    private static String name(Schema schema) {
      LogicalType logical = schema.getLogicalType();
      String type = schema.getType().getName();
      if (logical instanceof LogicalTypes.Decimal decimal) {
        return type + " decimal " + decimal.getPrecision() + " " + decimal.getScale();
      }
      return logical == null ? type : type + " " + logical.getName();
    }
  }

  private static final class Walk {
    private final Decoder in;
    private final boolean converted;

    Walk(Decoder in, boolean converted) {
      this.in = in;
      this.converted = converted;
    }

    JsonNode read(Resolver.Action action) throws IOException {
      if (action instanceof Resolver.Container container) {
        return container.reader.getType() == Schema.Type.ARRAY ? array(container) : map(container);
      }
      if (action instanceof Resolver.RecordAdjust record) {
        return record(record);
      }
      if (action instanceof Resolver.EnumAdjust symbols) {
        return JSON.valueToTree(symbols.reader.getEnumSymbols().get(symbols.adjustments[in.readEnum()]));
      }
      if (action instanceof Resolver.WriterUnion union) {
        int number = in.readIndex();
        JsonNode value = read(union.actions[number]);
        return union.unionEquiv ? branch(number, value) : value;
      }
      if (action instanceof Resolver.ReaderUnion union) {
        return branch(union.firstMatch, read(union.actualAction));
      }
      if (action instanceof Resolver.DoNothing || action instanceof Resolver.Promote) {
        GenericDatumReader<Object> plain = new GenericDatumReader<>(action.writer, action.writer, RAW);
        Object written = plain.read(null, in);
        return leaf(action.writer, action.reader, written);
      }
      throw new IllegalStateException(action.toString());
    }

    private JsonNode leaf(Schema writer, Schema reader, Object written) {
      if (converted && writer.getLogicalType() != null && reader.getLogicalType() != null) {
        return json(writer, written, CONVERTED);
      }
      return json(reader, promoted(written, reader), converted ? CONVERTED : RAW);
    }

    private static Object promoted(Object written, Schema reader) {
      return switch (reader.getType()) {
        case LONG -> ((Number) written).longValue();
        case FLOAT -> ((Number) written).floatValue();
        case DOUBLE -> ((Number) written).doubleValue();
        case STRING -> written instanceof ByteBuffer bytes ? StandardCharsets.UTF_8.decode(bytes) : written;
        case BYTES -> written instanceof CharSequence text
            ? ByteBuffer.wrap(text.toString().getBytes(StandardCharsets.UTF_8)) : written;
        default -> written;
      };
    }

    private ArrayNode array(Resolver.Container action) throws IOException {
      ArrayNode items = JSON.createArrayNode();
      for (long left = in.readArrayStart(); left > 0; left = in.arrayNext()) {
        for (; left > 0; left--) {
          items.add(read(action.elementAction));
        }
      }
      return items;
    }

    private ObjectNode map(Resolver.Container action) throws IOException {
      ObjectNode entries = JSON.createObjectNode();
      for (long left = in.readMapStart(); left > 0; left = in.mapNext()) {
        for (; left > 0; left--) {
          String key = in.readString();
          entries.set(key, read(action.elementAction));
        }
      }
      return sorted(entries);
    }

    private ArrayNode record(Resolver.RecordAdjust action) throws IOException {
      JsonNode[] fields = new JsonNode[action.reader.getFields().size()];
      int next = 0;
      for (Resolver.Action field : action.fieldActions) {
        if (field instanceof Resolver.Skip skip) {
          new GenericDatumReader<>(skip.writer, skip.writer, RAW).read(null, in);
        } else {
          fields[action.readerOrder[next++].pos()] = read(field);
        }
      }
      for (int i = action.firstDefault; i < action.readerOrder.length; i++) {
        Schema.Field field = action.readerOrder[i];
        fields[field.pos()] = json(field.schema(), defaultOf(field), converted ? CONVERTED : RAW);
      }
      ArrayNode made = JSON.createArrayNode();
      for (JsonNode field : fields) {
        made.add(field);
      }
      return made;
    }
  }

  /** A default as Avro reads it, with the branches of unions: that of a record without fields. */
  private static Object defaultOf(Schema.Field field) throws IOException {
    Schema reader = Schema.createRecord("WithDefault", null, null, false,
        List.of(new Schema.Field(field, field.schema())));
    Schema writer = Schema.createRecord("WithDefault", null, null, false, new ArrayList<>());
    return ((IndexedRecord) new BranchReader(writer, reader).read(null, decoder(new byte[0]))).get(0);
  }

  private static ObjectNode branch(int number, JsonNode value) {
    ObjectNode branch = JSON.createObjectNode().put("branch", number);
    branch.set("is", value);
    return branch;
  }

  private static ObjectNode sorted(ObjectNode entries) {
    ObjectNode made = JSON.createObjectNode();
    List<String> keys = new ArrayList<>();
    entries.fieldNames().forEachRemaining(keys::add);
    keys.stream().sorted().forEach(key -> made.set(key, entries.get(key)));
    return made;
  }

  /** `datum` of `schema`, with the logical types that `data` converts, and those of NANOSECONDS if it converts any. */
  private static JsonNode json(Schema schema, Object datum, GenericData data) {
    LogicalType logical = schema.getLogicalType();
    if (logical != null && data == CONVERTED && schema.getType() != Schema.Type.STRING) {
      Conversion<Object> conversion = data.getConversionFor(logical);
      if (conversion != null) {
        return converted(Conversions.convertToLogicalType(datum, schema, logical, conversion));
      }
      if (NANOSECONDS.containsKey(logical.getName())) {
        BigInteger unit = BigInteger.valueOf(NANOSECONDS.get(logical.getName()));
        return text("time", BigInteger.valueOf(((Number) datum).longValue()).multiply(unit));
      }
    }
    switch (schema.getType()) {
      case RECORD: {
        ArrayNode fields = JSON.createArrayNode();
        for (Schema.Field field : schema.getFields()) {
          fields.add(json(field.schema(), ((IndexedRecord) datum).get(field.pos()), data));
        }
        return fields;
      }
      case ARRAY: {
        ArrayNode items = JSON.createArrayNode();
        for (Object item : (Iterable<?>) datum) {
          items.add(json(schema.getElementType(), item, data));
        }
        return items;
      }
      case MAP: {
        ObjectNode entries = JSON.createObjectNode();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) datum).entrySet()) {
          entries.set(entry.getKey().toString(), json(schema.getValueType(), entry.getValue(), data));
        }
        return sorted(entries);
      }
      case UNION: {
        Branch branch = (Branch) datum;
        return branch(branch.number(), json(schema.getTypes().get(branch.number()), branch.value(), data));
      }
      case NULL:
        return JSON.nullNode();
      case BOOLEAN:
        return JSON.getNodeFactory().booleanNode((Boolean) datum);
      case INT:
      case LONG:
        return JSON.getNodeFactory().numberNode(((Number) datum).longValue());
      case FLOAT:
      case DOUBLE:
        return text("double", Long.toHexString(Double.doubleToLongBits(((Number) datum).doubleValue())));
      case BYTES: {
        ByteBuffer bytes = ((ByteBuffer) datum).duplicate();
        byte[] content = new byte[bytes.remaining()];
        bytes.get(content);
        return text("bytes", HexFormat.of().formatHex(content));
      }
      case FIXED:
        return text("bytes", HexFormat.of().formatHex(((GenericFixed) datum).bytes()));
      default:
        return JSON.getNodeFactory().textNode(datum.toString());
    }
  }

  private static JsonNode converted(Object value) {
    if (value instanceof BigDecimal decimal) {
      return text("decimal", decimal.toPlainString());
    }
    if (value instanceof LocalDate day) {
      return text("time", nanoseconds(day.atStartOfDay().toInstant(ZoneOffset.UTC)));
    }
    if (value instanceof LocalDateTime time) {
      return text("time", nanoseconds(time.toInstant(ZoneOffset.UTC)));
    }
    return value instanceof Instant time
        ? text("time", nanoseconds(time)) : JSON.getNodeFactory().textNode(value.toString());
  }

  private static BigInteger nanoseconds(Instant time) {
    BigInteger seconds = BigInteger.valueOf(time.getEpochSecond());
    return seconds.multiply(BigInteger.valueOf(1_000_000_000)).add(BigInteger.valueOf(time.getNano()));
  }

  private static ObjectNode text(String kind, Object value) {
    return JSON.createObjectNode().put(kind, value.toString());
  }
}
