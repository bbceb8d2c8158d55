import com.google.protobuf.ByteString;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.DescriptorValidationException;
import com.google.protobuf.Descriptors.EnumValueDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DurationProto;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.EmptyProto;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.StructProto;
import com.google.protobuf.TimestampProto;
import com.google.protobuf.WrappersProto;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * What Protobuf's own implementation makes of messages: a line with a question in, one with JSON out.
 *
 * `write`, a descriptor of a file, a message's name, and bodies: the bodies as Java writes them. `read` with the same:
 * the values, in JSON, and whether they have all required fields. All bytes are in hexadecimal.
 */
final class ProtobufReader {
  private static final HexFormat HEX = HexFormat.of();
  /** Of the value that was told: `isInitialized` looks at entries of maps that a later one replaces, too. */
  private static boolean complete;
  private static final FileDescriptor[] KNOWN = {
      DurationProto.getDescriptor(), EmptyProto.getDescriptor(), StructProto.getDescriptor(),
      TimestampProto.getDescriptor(), WrappersProto.getDescriptor(),
  };

  public static void main(String[] arguments) throws IOException {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(answer(line.split(" ")));
      out.flush();
    }
  }

  private static StringBuilder answer(String[] question) throws IOException {
    StringBuilder out = new StringBuilder("[");
    try {
      FileDescriptorProto proto = FileDescriptorProto.parseFrom(HEX.parseHex(question[1]));
      Descriptor message = named(FileDescriptor.buildFrom(proto, KNOWN).getMessageTypes(), question[2]);
      for (int i = 3; i < question.length; i++) {
        out.append(i > 3 ? "," : "");
        byte[] body = HEX.parseHex(question[i].substring(1));
        try {
          DynamicMessage value = DynamicMessage.newBuilder(message).mergeFrom(body).buildPartial();
          if (question[0].equals("write")) {
            text(HEX.formatHex(value.toByteArray()), out);
          } else {
            complete = true;
            json(value, out.append("{\"is\":")).append(",\"complete\":").append(complete).append("}");
          }
        } catch (InvalidProtocolBufferException error) {
          text(error.getMessage(), out.append("{\"error\":")).append("}");
        }
      }
    } catch (DescriptorValidationException error) {
      return text(error.getMessage(), new StringBuilder("{\"error\":")).append("}");
    }
    return out.append("]");
  }

  private static Descriptor named(List<Descriptor> among, String name) {
    for (Descriptor message : among) {
      if (message.getFullName().equals(name)) {
        return message;
      }
      if (name.startsWith(message.getFullName() + ".")) {
        return named(message.getNestedTypes(), name);
      }
    }
    throw new IllegalArgumentException(name);
  }

  private static StringBuilder json(Message message, StringBuilder out) {
    String before = "{";
    for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
      text(field.getName(), out.append(before)).append(':');
      before = ",";
      complete &= !field.isRequired() || message.hasField(field);
      if (field.isMapField()) {
        entries(field, (List<?>) message.getField(field), out);
      } else if (field.isRepeated()) {
        out.append('[');
        String separator = "";
        for (Object item : (List<?>) message.getField(field)) {
          single(field, item, out.append(separator));
          separator = ",";
        }
        out.append(']');
      } else if (field.hasPresence() && !message.hasField(field)) {
        out.append("null");
      } else {
        single(field, message.getField(field), out);
      }
    }
    return out.append(before.equals("{") ? "{}" : "}");
  }

  /** Of entries with one key, the last one counts. One whose value is a number that its closed enum lacks is `null`. */
  private static void entries(FieldDescriptor field, List<?> entries, StringBuilder out) {
    FieldDescriptor key = field.getMessageType().findFieldByNumber(1);
    FieldDescriptor value = field.getMessageType().findFieldByNumber(2);
    Map<Object, Object> last = new LinkedHashMap<>();
    int unknown = 0;
    for (Object entry : entries) {
      if (((Message) entry).getUnknownFields().hasField(value.getNumber())) {
        unknown++;
        continue;
      }
      last.put(((Message) entry).getField(key), ((Message) entry).getField(value));
    }
    out.append('[');
    String before = "[";
    for (Map.Entry<Object, Object> entry : last.entrySet()) {
      single(key, entry.getKey(), out.append(before));
      single(value, entry.getValue(), out.append(','));
      out.append(']');
      before = ",[";
    }
    for (; unknown > 0; unknown--) {
      out.append(before.equals("[") ? "null" : ",null");
      before = ",[";
    }
    out.append(']');
  }

  private static void single(FieldDescriptor field, Object value, StringBuilder out) {
    switch (field.getType()) {
      case MESSAGE, GROUP -> json((Message) value, out);
      case ENUM -> {
        EnumValueDescriptor symbol = (EnumValueDescriptor) value;
        text(symbol.getIndex() < 0 ? Integer.toString(symbol.getNumber()) : symbol.getName(), out);
      }
      case STRING -> text((String) value, out);
      case BYTES -> text(HEX.formatHex(((ByteString) value).toByteArray()), out);
      case UINT32, FIXED32 -> out.append(Integer.toUnsignedString((Integer) value));
      case UINT64, FIXED64 -> out.append(Long.toUnsignedString((Long) value));
      case FLOAT -> text(HEX.toHexDigits(Float.floatToIntBits((Float) value)), out);
      case DOUBLE -> text(HEX.toHexDigits(Double.doubleToLongBits((Double) value)), out);
      default -> out.append(value);
    }
  }

  private static StringBuilder text(String content, StringBuilder out) {
    out.append('"');
    for (int i = 0; i < content.length(); i++) {
      char sign = content.charAt(i);
      if (sign < ' ' || sign == '"' || sign == '\\') {
        out.append(String.format("\\u%04x", (int) sign));
      } else {
        out.append(sign);
      }
    }
    return out.append('"');
  }
}
