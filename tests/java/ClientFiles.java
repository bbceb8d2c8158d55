import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.ssl.DefaultSslEngineFactory;

/**
 * What Kafka's client reads of the text of a setting. Each line of standard input is a question and its texts, separated
 * by spaces; each line of standard output is its answer, `-` if the client refuses the text. Texts are in Base64 of
 * UTF-16, "." for none.
 */
public class ClientFiles {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = switch (words[0]) {
                    case "properties" -> properties(text(words[1]), text(words[2]));
                    case "jaas" -> jaas(text(words[1]));
                    case "trust" -> trust(text(words[1]));
                    case "identity" -> identity(text(words[1]), text(words[2]), text(words[3]));
                    case "protocols" -> protocols(text(words[1]), text(words[2]));
                    default -> throw new IllegalStateException(words[0]);
                };
            } catch (IllegalStateException error) {
                throw error;
            } catch (Exception error) {
                answer = "-";
            }
            System.out.println(answer);
            System.out.flush();
        }
    }

    /** Each name of a property file and its value. The file's bytes come as the characters of ISO-8859-1. */
    private static String properties(String encoding, String file) throws Exception {
        Properties read = new Properties();
        ByteArrayInputStream bytes = new ByteArrayInputStream(file.getBytes(StandardCharsets.ISO_8859_1));
        if (encoding.equals("iso-8859-1")) {
            read.load(bytes);
        } else {
            read.load(new InputStreamReader(bytes, encoding));
        }
        List<String> words = new ArrayList<>();
        for (String name : read.stringPropertyNames()) {
            words.add(word(name));
            words.add(word(read.getProperty(name)));
        }
        return String.join(" ", words);
    }

    /** Module, and each option and its value. */
    private static String jaas(String text) {
        JaasContext context = JaasContext.loadClientContext(Map.of("sasl.jaas.config", new Password(text)));
        AppConfigurationEntry entry = context.configurationEntries().get(0);
        List<String> words = new ArrayList<>(List.of(word(entry.getLoginModuleName())));
        for (Map.Entry<String, ?> option : entry.getOptions().entrySet()) {
            if (option.getKey() != null) {
                words.add(word(option.getKey()));
                words.add(word((String) option.getValue()));
            }
        }
        return String.join(" ", words);
    }

    /** The trusted certificates. */
    private static String trust(String pem) throws Exception {
        try (DefaultSslEngineFactory factory = configured(Map.of("ssl.truststore.type", "PEM", "ssl.truststore.certificates", pem))) {
            return certificates(factory.truststore());
        }
    }

    /** The first certificate of the client's chain, if its key can be read. */
    private static String identity(String chain, String key, String password) throws Exception {
        Map<String, Object> given = new HashMap<>();
        given.put("ssl.keystore.type", "PEM");
        given.put("ssl.keystore.certificate.chain", chain);
        given.put("ssl.keystore.key", key);
        if (password != null) {
            given.put("ssl.key.password", password);
        }
        try (DefaultSslEngineFactory factory = configured(given)) {
            return certificates(factory.keystore());
        }
    }

    /** The versions of TLS that a client offers. */
    private static String protocols(String protocol, String enabled) throws Exception {
        Map<String, Object> given = new HashMap<>();
        if (protocol != null) {
            given.put("ssl.protocol", protocol);
        }
        if (enabled != null) {
            given.put("ssl.enabled.protocols", enabled);
        }
        try (DefaultSslEngineFactory factory = configured(given)) {
            String[] offered = factory.createClientSslEngine("broker", 9092, "").getEnabledProtocols();
            return String.join(" ", new TreeSet<>(List.of(offered)));
        }
    }

    /** As a consumer has it of its settings. */
    private static DefaultSslEngineFactory configured(Map<String, ?> given) {
        Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", "broker:9092"));
        all.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        all.put("value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        all.putAll(given);
        DefaultSslEngineFactory factory = new DefaultSslEngineFactory();
        factory.configure(new ConsumerConfig(all).values());
        return factory;
    }

    private static String certificates(KeyStore store) throws Exception {
        TreeSet<String> found = new TreeSet<>();
        for (String alias : Collections.list(store.aliases())) {
            found.add(Base64.getEncoder().encodeToString(store.getCertificate(alias).getEncoded()));
        }
        return String.join(" ", found);
    }

    private static String text(String word) {
        return word.equals(".") ? null : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_16BE);
    }

    /** Also of half a character, which `getBytes` would replace. */
    private static String word(String text) {
        ByteBuffer bytes = ByteBuffer.allocate(2 * text.length());
        bytes.asCharBuffer().put(text);
        String encoded = Base64.getEncoder().encodeToString(bytes.array());
        return encoded.isEmpty() ? "=" : encoded;
    }
}
