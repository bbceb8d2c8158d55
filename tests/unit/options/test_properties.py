"""Java's .properties syntax, as java.util.Properties.load reads it."""

import json
from pathlib import Path

import pytest

from spark_kafka_eos.auth.kerberos import Kerberos
from spark_kafka_eos.auth.tokens import TokenProvider
from spark_kafka_eos.options import from_properties, sink_options, source_options

CONF = Path(__file__).parents[3] / "conf"


@pytest.fixture
def read(tmp_path):
    def read_text(text: str) -> dict[str, str]:
        path = tmp_path / "client.properties"
        path.write_text(text, encoding="utf-8")
        return from_properties(path)

    return read_text


@pytest.mark.parametrize(
    "line",
    ["client.id=me", "client.id = me", "client.id: me", "client.id me", "  client.id\t=\tme", "kafka.client.id=me"],
)
def test_a_name_is_prefixed_once_with_anything_between_it_and_its_value(read, line):
    assert read(line) == {"kafka.client.id": "me"}


def test_comments_and_blank_lines_are_left_out(read):
    assert read("# one\n\n  ! two\na=1#not a comment\n") == {"kafka.a": "1#not a comment"}


def test_a_backslash_joins_lines_without_the_next_lines_indentation(read):
    assert read("a=x,\\\n    y\nb=2") == {"kafka.a": "x,y", "kafka.b": "2"}


def test_two_backslashes_at_the_end_are_one_backslash_not_a_joint(read):
    assert read("a=x\\\\\nb=2") == {"kafka.a": "x\\", "kafka.b": "2"}


def test_a_comment_sign_in_a_joined_line_belongs_to_the_value(read):
    assert read("a=x\\\n#y") == {"kafka.a": "x#y"}


def test_escapes_are_undone_in_names_and_values(read):
    assert read("a\\=b=\\u00e4\\t\\n\\x") == {"kafka.a=b": "ä\t\nx"}


def test_a_value_keeps_what_follows_the_first_separator(read):
    assert read('c=a = "b"; \nd==e') == {"kafka.c": 'a = "b"; ', "kafka.d": "=e"}


def test_a_name_alone_has_an_empty_value(read):
    assert read("a\nb=") == {"kafka.a": "", "kafka.b": ""}


def test_the_last_of_two_equal_names_wins(read):
    assert read("a=1\na=2") == {"kafka.a": "2"}


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
