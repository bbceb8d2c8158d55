"""Java's .properties syntax, as java.util.Properties.load reads it."""

import json
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.kerberos import Kerberos
from spark_kafka_eos.kafka.auth.tokens import TokenProvider
from spark_kafka_eos.options import from_properties, sink_options, source_options
from spark_kafka_eos.options.properties import entries

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
