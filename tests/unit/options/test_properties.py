"""Java's .properties syntax, as java.util.Properties.load reads it."""

import json
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import tls_context
from spark_kafka_eos.kafka.auth.kerberos import Kerberos
from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint, TokenProvider
from spark_kafka_eos.options import Security, from_properties, sink_options, source_options, table
from spark_kafka_eos.options.properties import entries
from tests.certificates import issue
from tests.unit.kafka.auth.test_jks import TRUSTSTORE

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture
def read(tmp_path):
    def read_text(text: str | bytes) -> dict[str, str]:
        path = tmp_path / "client.properties"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return entries(path)

    return read_text


@pytest.mark.parametrize(
    "line",
    ["client.id=me", "client.id = me", "client.id: me", "client.id me", "  client.id\t=\tme", "kafka.client.id=me"],
)
def test_a_name_is_prefixed_once_with_anything_between_it_and_its_value(tmp_path, line):
    path = tmp_path / "client.properties"
    path.write_text(line)
    assert from_properties(path) == {"kafka.client.id": "me"}


def test_comments_and_blank_lines_are_left_out(read):
    assert read("# one\n\n  ! two\na=1#not a comment\n") == {"a": "1#not a comment"}


def test_a_backslash_joins_lines_without_the_next_lines_indentation(read):
    assert read("a=x,\\\n    y\nb=2") == {"a": "x,y", "b": "2"}


def test_two_backslashes_at_the_end_are_one_backslash_not_a_joint(read):
    assert read("a=x\\\\\nb=2") == {"a": "x\\", "b": "2"}


def test_a_comment_sign_in_a_joined_line_belongs_to_the_value(read):
    assert read("a=x\\\n#y") == {"a": "x#y"}


def test_escapes_are_undone_in_names_and_values(read):
    assert read("a\\=b=\\u00e4\\t\\n\\x") == {"a=b": "ä\t\nx"}


def test_a_value_keeps_what_follows_the_first_separator(read):
    assert read('c=a = "b"; \nd==e') == {"c": 'a = "b"; ', "d": "=e"}


def test_a_name_alone_has_an_empty_value(read):
    assert read("a\nb=") == {"a": "", "b": ""}


def test_the_last_of_two_equal_names_wins(read):
    assert read("a=1\na=2") == {"a": "2"}


def test_only_line_feed_and_carriage_return_end_a_line(read):
    """Python's splitlines() would end one at each of these."""
    value = "p\x0bq\x0cr\x1cs\x1dt\x1eu\x85v\u2028w\u2029x"
    assert read(f"a={value}\rb=1\r\nc=2") == {"a": value, "b": "1", "c": "2"}


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("Grüße".encode(), "Grüße"),
        (b"\xef\xbb\xbfa=\xc3\xbc", "ü"),  # with the mark that some editors put first
        ("Grüße".encode("iso-8859-1"), "Grüße"),
        (b"\\u00fc\\uD83D\\uDE00", "ü😀"),
    ],
    ids=["UTF-8", "UTF-8 with a mark", "ISO-8859-1", "escapes"],
)
def test_a_file_is_utf_8_or_iso_8859_1(read, content, value):
    assert read(content if b"a=" in content else b"a=" + content) == {"a": value}


@pytest.mark.parametrize("escape", ["\\u12G4", "\\u123", "\\u", "\\uD83D", "\\uDE00\\uD83D", "\\u１２３４"])
def test_what_is_no_character_is_refused_with_nothing_of_the_file(tmp_path, escape):
    path = tmp_path / "client.properties"
    path.write_text(f"# one\n\nsasl.jaas.config=hunter2{escape}hunter3\n")
    with pytest.raises(ConfigurationError, match=r"client\.properties, line 3: \\u ") as raised:
        from_properties(path)
    assert "hunter" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_rest_of_a_broken_password_is_in_no_message(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text('client.id=me\\\n too\nsasl.jaas.config=a.Module required password="hunter\n2topsecret";\n')
    with pytest.raises(ConfigurationError, match="line 4: the name there, which is not shown") as raised:
        from_properties(path)
    assert "secret" not in str(raised.value)
    assert "end the line with a backslash" in raised.value.action


def test_a_name_that_is_like_one_of_kafkas_is_answered_with_that_one(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("sasl.jaas.configs=hunter2")
    with pytest.raises(ConfigurationError, match=r"Did you mean kafka\.sasl\.jaas\.config\?") as raised:
        from_properties(path)
    assert "configs" not in str(raised.value)


def test_a_file_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        from_properties(tmp_path / "none")


def test_the_file_in_conf_for_a_user_and_password_works_as_it_is_shown(monkeypatch):
    for name, mechanism in (("scram", "SCRAM-SHA-512"), ("plain", "PLAIN"), ("oauthbearer", "OAUTHBEARER")):
        given = from_properties(CONF / f"client-sasl-{name}.properties")
        # The one thing a reader has to change: where the authority's certificate lies.
        given["kafka.ssl.truststore.location"] = __file__
        security = source_options({"subscribe": "t", **given}).client.security
        assert (security.protocol, security.mechanism) == ("SASL_SSL", mechanism)
        assert security.username is not None


def test_the_file_in_conf_for_msk_iam_works_as_it_is_shown():
    security = source_options({"subscribe": "t", **from_properties(CONF / "client-msk-iam.properties")}).client.security
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "OAUTHBEARER")
    assert isinstance(security.token_source, TokenProvider)
    assert json.loads(security.token_source.config.reveal()) == {"region": "eu-west-1"}


def test_the_file_in_conf_for_kerberos_works_as_it_is_shown():
    given = from_properties(CONF / "client-kerberos.properties") | {"kafka.ssl.truststore.location": __file__}
    given["kafka.sasl.jaas.config"] = given["kafka.sasl.jaas.config"].replace("/etc/kafka/orders.keytab", __file__)
    security = source_options({"subscribe": "t", **given}).client.security
    assert security.kerberos == Kerberos(service="kafka", principal="orders@EXAMPLE.COM", keytab=__file__)


def test_the_files_in_conf_for_tls_work_as_they_are_shown():
    given = from_properties(CONF / "client-tls.properties") | {"kafka.ssl.truststore.location": __file__}
    tls = sink_options({"topic": "t", "kafka.transactional.id": "x", **given}).client.security
    assert (tls.protocol, tls.ca_location, tls.certificate_location) == ("SSL", __file__, None)
    given = from_properties(CONF / "client-mtls.properties")
    given |= {"kafka.ssl.truststore.location": __file__, "kafka.ssl.keystore.location": __file__}
    mtls = sink_options({"topic": "t", "kafka.transactional.id": "x", **given}).client.security
    assert (mtls.protocol, mtls.certificate_location, mtls.key_location) == ("SSL", __file__, __file__)


# -- the files that services of Kafka give to their users

CONFLUENT_CLOUD = """# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-abcde.eu-central-1.aws.confluent.cloud:9092
security.protocol=SASL_SSL
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SEC/RET+x=';
sasl.mechanism=PLAIN
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips

# Best practice for higher availability in Apache Kafka clients prior to 3.0
session.timeout.ms=45000

# Best practice for Kafka producer to prevent data loss
acks=all
client.id=ccloud-java-client-1

# Required connection configs for Confluent Cloud Schema Registry
schema.registry.url=https://psrc-abcde.eu-central-1.aws.confluent.cloud
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=REGISTRYKEY:REGISTRYSECRET
"""
AIVEN = """security.protocol=SSL
ssl.truststore.location={folder}/client.truststore.jks
ssl.truststore.password=changeit
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/client.keystore.p12
ssl.keystore.password=changeit
ssl.key.password=changeit
ssl.protocol=TLS
ssl.endpoint.identification.algorithm=
"""
MSK_TLS = """security.protocol=SSL
ssl.enabled.protocols=TLSv1.2,TLSv1.1
ssl.truststore.location={folder}/client.truststore.jks
"""
MSK_IAM = """security.protocol = SASL_SSL
sasl.mechanism = AWS_MSK_IAM
sasl.jaas.config = software.amazon.msk.auth.iam.IAMLoginModule required;
sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler
"""
EVENT_HUBS = """bootstrap.servers=space.servicebus.windows.net:9093
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="$ConnectionString" \\
    password="Endpoint=sb://space.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey=SECRET+/=";
request.timeout.ms=60000
metadata.max.age.ms=180000
connections.max.idle.ms=180000
"""
STRIMZI = """security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=my-user password=SECRET;
ssl.truststore.location={folder}/client.keystore.p12
ssl.truststore.password=changeit
ssl.truststore.type=PKCS12
"""
STRIMZI_OAUTH = """security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \\
  oauth.client.id="team-a" oauth.client.secret="SECRET" oauth.scope="kafka" \\
  oauth.token.endpoint.uri="https://keycloak.example/realms/kafka/protocol/openid-connect/token" \\
  oauth.ssl.truststore.location="{folder}/client.truststore.jks" oauth.ssl.truststore.password="changeit" \\
  oauth.ssl.truststore.type="JKS" ;
sasl.login.callback.handler.class=io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler
"""


@pytest.fixture
def security_of(tmp_path, caplog):
    """The security that a service's file leads to; the stores that the file names are in `{folder}`."""
    (tmp_path / "client.truststore.jks").write_bytes(TRUSTSTORE)
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = x509.load_pem_x509_certificate(issue(tmp_path).ca.read_bytes())
    stored = pkcs12.serialize_key_and_certificates(
        b"client", key, None, [certificate], serialization.BestAvailableEncryption(b"changeit")
    )
    (tmp_path / "client.keystore.p12").write_bytes(stored)

    def security(text: str) -> Security:
        table.say_without_effect.cache_clear()
        path = tmp_path / "client.properties"
        path.write_text(text.format(folder=tmp_path))
        options = {"kafka.bootstrap.servers": "a:1"} | from_properties(path)
        assert "SECRET" not in json.dumps({name: value for name, value in options.items() if "jaas" not in name})
        sink_options({"topic": "t", "kafka.transactional.id": "x", **options})
        security = source_options({"subscribe": "t", **options}).client.security
        assert "SECRET" not in caplog.text
        return security

    return security


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (CONFLUENT_CLOUD, ("SASL_SSL", "PLAIN", "KEY", "SEC/RET+x=")),
        (
            EVENT_HUBS,
            ("SASL_SSL", "PLAIN", "$ConnectionString", EVENT_HUBS.partition('password="')[2].partition('"')[0]),
        ),
        (STRIMZI, ("SASL_SSL", "SCRAM-SHA-512", "my-user", "SECRET")),
        (STRIMZI_OAUTH, ("SASL_SSL", "OAUTHBEARER", "team-a", "SECRET")),
    ],
    ids=["Confluent Cloud", "Event Hubs", "Strimzi", "Strimzi OAuth"],
)
def test_a_services_file_with_a_login_works_as_it_is(security_of, text, who):
    security = security_of(text)
    assert (security.protocol, security.mechanism, security.username, security.password.reveal()) == who


def test_a_services_file_with_certificates_works_as_it_is(security_of):
    aiven = security_of(AIVEN)
    assert (aiven.protocol, aiven.check_hostname, aiven.mechanism) == ("SSL", False, None)
    assert aiven.certificate_pem and aiven.key_pem and aiven.ca_pem and not aiven.key_password
    msk = security_of(MSK_TLS)
    assert msk.tls_versions == ("TLSv1.2",)
    assert tls_context(msk).maximum_version is ssl.TLSVersion.TLSv1_2
    assert isinstance(security_of(MSK_IAM).token_source, TokenProvider)


def test_strimzis_names_of_a_token_endpoint_are_those_of_the_client(security_of):
    endpoint = security_of(STRIMZI_OAUTH).token_source
    assert isinstance(endpoint, TokenEndpoint)
    assert (endpoint.url, endpoint.scope) == (
        "https://keycloak.example/realms/kafka/protocol/openid-connect/token",
        "kafka",
    )
    assert endpoint.ca_pem and endpoint.ca_location is None
    with pytest.raises(ConfigurationError, match="an http:// URL would send"):
        security_of(STRIMZI_OAUTH.replace("https:", "http:"))
    with pytest.raises(ConfigurationError, match=r"oauth\.access\.token is not an option"):
        security_of(STRIMZI_OAUTH.replace("oauth.scope", "oauth.access.token"))
    without_handler = STRIMZI_OAUTH.partition("sasl.login.callback")[0]
    with pytest.raises(ConfigurationError, match=r"oauth\.client\.id is not an option"):
        security_of(without_handler)


OF_REGISTRY = """\
schema.registry.basic.auth.credentials.source=USER_INFO
schema.registry.ssl.truststore.location=/etc/registry.pem
schema.registry.ssl.key.password=SECRET
Schema.Registry.of.a.later.release=SECRET
bearer.auth.issuer.endpoint.url=https://idp.example/SECRET
normalize.schemas=true
"""


def test_each_setting_of_a_registry_is_named_in_a_warning_and_becomes_no_option(tmp_path, caplog):
    path = tmp_path / "client.properties"
    path.write_text(OF_REGISTRY + "client.id=me\n")
    assert from_properties(path) == {"kafka.client.id": "me"}
    for name in (line.partition("=")[0] for line in OF_REGISTRY.splitlines()):
        assert f"kafka.{name} has no effect: it is for a schema registry" in caplog.text
    assert "SECRET" not in caplog.text


def test_a_setting_of_a_registry_has_no_effect_as_an_option_either(caplog):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.schema.registry.ssl.truststore.type": "PEM"}
    source_options(given)
    assert "kafka.schema.registry.ssl.truststore.type has no effect: it is for a schema registry" in caplog.text


def test_what_a_file_has_for_a_registry_is_named_in_a_warning_and_becomes_no_option(security_of, caplog):
    security_of(CONFLUENT_CLOUD)
    for name in ("schema.registry.url", "basic.auth.credentials.source", "basic.auth.user.info"):
        assert f"kafka.{name} has no effect: it is for a schema registry" in caplog.text
    assert "REGISTRY" not in caplog.text
    assert "psrc" not in caplog.text
    for name in ("client.dns.lookup", "session.timeout.ms"):
        assert f"kafka.{name} has no effect" in caplog.text
