import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.debezium.data.Bits;
import io.debezium.data.Envelope;
import io.debezium.data.EnumSet;
import io.debezium.data.Json;
import io.debezium.data.Uuid;
import io.debezium.data.VariableScaleDecimal;
import io.debezium.data.geometry.Point;
import io.debezium.time.MicroDuration;
import io.debezium.time.MicroTime;
import io.debezium.time.MicroTimestamp;
import io.debezium.time.NanoTime;
import io.debezium.time.NanoTimestamp;
import io.debezium.time.Year;
import io.debezium.time.ZonedTimestamp;
import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Change events of a table with a column of each type, as Debezium's and Kafka Connect's own classes write them: a line
 * of JSON each, with key and value in JSON and in Avro, and what the row has, as text.
 *
 * Arguments: a seed, how many changes, and NUMERIC or BASE64 for decimals.
 */
final class ChangeEvents {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String TOPIC = "shop.public.orders";
  private static final Schema KEY =
      SchemaBuilder.struct().name(TOPIC + ".Key").field("id", Schema.INT64_SCHEMA).build();
  private static final Schema ROW = SchemaBuilder.struct().name(TOPIC + ".Value").optional()
      .field("id", Schema.INT64_SCHEMA)
      .field("tiny", Schema.OPTIONAL_INT16_SCHEMA)
      .field("whole", Schema.OPTIONAL_INT32_SCHEMA)
      .field("ratio", Schema.OPTIONAL_FLOAT32_SCHEMA)
      .field("share", Schema.OPTIONAL_FLOAT64_SCHEMA)
      .field("paid", Schema.OPTIONAL_BOOLEAN_SCHEMA)
      .field("name", Schema.OPTIONAL_STRING_SCHEMA)
      .field("raw", Schema.OPTIONAL_BYTES_SCHEMA)
      .field("amount", Decimal.builder(2).parameter("connect.decimal.precision", "9").optional().build())
      .field("total", Decimal.builder(4).optional().build())
      .field("any_scale", VariableScaleDecimal.optionalSchema())
      .field("connect_date", org.apache.kafka.connect.data.Date.builder().optional().build())
      .field("connect_time", Time.builder().optional().build())
      .field("connect_timestamp", Timestamp.builder().optional().build())
      .field("date", io.debezium.time.Date.builder().optional().build())
      .field("time", io.debezium.time.Time.builder().optional().build())
      .field("micro_time", MicroTime.builder().optional().build())
      .field("nano_time", NanoTime.builder().optional().build())
      .field("timestamp", io.debezium.time.Timestamp.builder().optional().build())
      .field("micro_timestamp", MicroTimestamp.builder().optional().build())
      .field("nano_timestamp", NanoTimestamp.builder().optional().build())
      .field("zoned_timestamp", ZonedTimestamp.builder().optional().build())
      .field("year", Year.builder().optional().build())
      .field("duration", MicroDuration.builder().optional().build())
      .field("state", io.debezium.data.Enum.builder("open,paid").optional().build())
      .field("tags", EnumSet.builder("new,big").optional().build())
      .field("document", Json.builder().optional().build())
      .field("uuid", Uuid.builder().optional().build())
      .field("bits", Bits.builder(9).optional().build())
      .field("place", Point.builder().optional().build())
      .field("numbers", SchemaBuilder.array(Schema.OPTIONAL_INT32_SCHEMA).optional().build())
      .field("labels", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.OPTIONAL_STRING_SCHEMA).optional().build())
      .field("scores", SchemaBuilder.map(Schema.INT32_SCHEMA, Schema.FLOAT64_SCHEMA).optional().build())
      .build();
  private static final Schema SOURCE = SchemaBuilder.struct().name("io.debezium.connector.postgresql.Source")
      .field("table", Schema.STRING_SCHEMA)
      .field("lsn", Schema.OPTIONAL_INT64_SCHEMA)
      .build();
  private static final Envelope ENVELOPE =
      Envelope.defineSchema().withName(TOPIC + ".Envelope").withRecord(ROW).withSource(SOURCE).build();

  private final Random random;
  private final JsonConverter keys = new JsonConverter();
  private final JsonConverter values = new JsonConverter();
  private final AvroData avro = new AvroData(100);

  private ChangeEvents(long seed, String decimals) {
    random = new Random(seed);
    Map<String, String> settings = Map.of("schemas.enable", "true", "decimal.format", decimals);
    keys.configure(settings, true);
    values.configure(settings, false);
  }

  public static void main(String[] arguments) throws Exception {
    ChangeEvents events = new ChangeEvents(Long.parseLong(arguments[0]), arguments[2]);
    for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
      events.change(number);
    }
  }

  private void change(int number) throws Exception {
    Struct key = new Struct(KEY).put("id", (long) random.nextInt(20));
    Struct source = new Struct(SOURCE).put("table", "orders").put("lsn", (long) number);
    Instant now = Instant.ofEpochMilli(1_700_000_000_000L + number);
    ObjectNode before = JSON.createObjectNode();
    ObjectNode after = JSON.createObjectNode();
    switch (random.nextInt(5)) {
      case 0 -> {
        print(key, ENVELOPE.delete(row(key, before), source, now), before, null);
        print(key, null, null, null);  // the tombstone
      }
      case 1 -> print(key, ENVELOPE.update(row(key, before), row(key, after), source, now), before, after);
      default -> print(key, ENVELOPE.create(row(key, after), source, now), null, after);
    }
  }

  private void print(Struct key, Struct value, ObjectNode before, ObjectNode after) throws Exception {
    ObjectNode line = JSON.createObjectNode();
    line.put("key", hex(keys.fromConnectData(TOPIC, KEY, key)));
    Schema schema = value == null ? null : value.schema();
    byte[] json = values.fromConnectData(TOPIC, schema, value);
    line.put("json", json == null ? null : hex(json));
    if (value != null) {
      org.apache.avro.Schema written = avro.fromConnectSchema(schema);
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
      new GenericDatumWriter<Object>(written).write(avro.fromConnectData(schema, value), encoder);
      encoder.flush();
      line.put("schema", written.toString()).put("avro", hex(bytes.toByteArray()));
      line.put("op", value.getString("op")).put("ts_ms", value.getInt64("ts_ms"));
    }
    line.set("before", before);
    line.set("after", after);
    System.out.println(JSON.writeValueAsString(line));
  }

  /** A row, and in `texts` what it has. */
  private Struct row(Struct key, ObjectNode texts) throws Exception {
    Struct row = new Struct(ROW);
    for (Field field : ROW.fields()) {
      if (field.name().equals("id")) {
        row.put(field, key.getInt64("id"));
        texts.put("id", key.getInt64("id").toString());
      } else if (random.nextInt(6) > 0) {
        row.put(field, value(field, texts));
      } else {
        texts.putNull(field.name());
      }
    }
    return row;
  }

  private Object value(Field field, ObjectNode texts) throws Exception {
    LocalDateTime local = LocalDateTime.ofEpochSecond(
        random.nextLong(-60_000_000_000L, 250_000_000_000L), random.nextInt(1_000_000) * 1_000, ZoneOffset.UTC);
    LocalDateTime millis = local.withNano(local.getNano() / 1_000_000 * 1_000_000);
    LocalTime time = local.toLocalTime();
    Object value;
    Object text;
    switch (field.name()) {
      case "tiny" -> text = value = (short) random.nextInt(Short.MIN_VALUE, Short.MAX_VALUE + 1);
      case "whole" -> text = value = random.nextInt();
      case "ratio" -> text = value = random.nextFloat() * 1e10f;
      case "share" -> text = value = random.nextInt(20) == 0 ? Double.NaN : random.nextGaussian() * 1e100;
      case "paid" -> text = value = random.nextBoolean();
      case "name" -> text = value = "Zoë \"" + random.nextInt() + "\" \u0001\uD83D\uDE00";
      case "raw", "bits" -> {
        byte[] bytes = new byte[field.name().equals("bits") ? 2 : random.nextInt(9)];
        random.nextBytes(bytes);
        value = bytes;
        text = hex(bytes);
      }
      case "amount" -> value = text = BigDecimal.valueOf(random.nextInt(-999_999_999, 999_999_999), 2);
      case "total" -> value = text = new BigDecimal(new BigInteger(random.nextInt(1, 112), random).negate(), 4);
      case "any_scale" -> {
        BigDecimal number = new BigDecimal(new BigInteger(200, random), random.nextInt(-20, 50));
        value = VariableScaleDecimal.fromLogical(field.schema(), random.nextBoolean() ? number : number.negate());
        text = VariableScaleDecimal.toLogical((Struct) value).getDecimalValue().get().toPlainString();
      }
      case "connect_date" -> {
        value = java.util.Date.from(local.toLocalDate().atStartOfDay().toInstant(ZoneOffset.UTC));
        text = local.toLocalDate();
      }
      case "connect_time" -> {
        value = new java.util.Date(time.toNanoOfDay() / 1_000_000);
        text = time.toNanoOfDay() / 1_000_000;
      }
      case "connect_timestamp" -> {
        value = java.util.Date.from(millis.toInstant(ZoneOffset.UTC));
        text = millis.atOffset(ZoneOffset.UTC);
      }
      case "date" -> {
        value = io.debezium.time.Date.toEpochDay(local.toLocalDate(), null);
        text = local.toLocalDate();
      }
      case "time" -> text = value = io.debezium.time.Time.toMilliOfDay(time, true);
      case "micro_time" -> text = value = MicroTime.toMicroOfDay(time, true);
      case "nano_time" -> text = value = NanoTime.toNanoOfDay(time.plusNanos(random.nextInt(1_000)), true);
      case "timestamp" -> {
        value = io.debezium.time.Timestamp.toEpochMillis(millis, null);
        text = millis;
      }
      case "micro_timestamp" -> {
        value = MicroTimestamp.toEpochMicros(local, null);
        text = local;
      }
      case "nano_timestamp" -> {
        LocalDateTime recent = local.withYear(random.nextInt(1900, 2200)).plusNanos(random.nextInt(1_000));
        text = value = NanoTimestamp.toEpochNanos(recent, null);
      }
      case "zoned_timestamp" -> {
        OffsetDateTime zoned = local.atOffset(ZoneOffset.ofHoursMinutes(random.nextInt(-9, 10), 0));
        value = ZonedTimestamp.toIsoString(zoned, null);
        text = zoned.withOffsetSameInstant(ZoneOffset.UTC);
      }
      case "year" -> text = value = random.nextInt(1901, 2156);
      case "duration" -> text = value = MicroDuration.durationMicros(0, random.nextInt(-9, 9), 3, 4, 5, 6.5, 0, 30.4);
      case "state" -> text = value = random.nextBoolean() ? "open" : "paid";
      case "tags" -> text = value = "new,big";
      case "document" -> text = value = "{\"a\": [1, null, \"x\"]}";
      case "uuid" -> text = value = new UUID(random.nextLong(), random.nextLong()).toString();
      case "place" -> {
        value = Point.createValue(field.schema(), random.nextInt(90), random.nextInt(90));
        text = ((Struct) value).getFloat64("x") + " " + ((Struct) value).getFloat64("y") + " "
            + hex(((Struct) value).getBytes("wkb"));
      }
      case "numbers" -> text = value = List.of(random.nextInt(), random.nextInt());
      case "labels" -> {
        value = Map.of("first " + random.nextInt(), "x");
        text = ((Map<?, ?>) value).keySet().iterator().next();
      }
      case "scores" -> {
        value = Map.of(random.nextInt(), 0.5);
        text = ((Map<?, ?>) value).keySet().iterator().next();
      }
      default -> throw new AssertionError(field.name());
    }
    texts.put(field.name(), text instanceof BigDecimal number ? number.toPlainString() : text.toString());
    return value;
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }
}
