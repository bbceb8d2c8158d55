"""Truststores and keystores: recognised by content, PKCS12 and JKS opened, others answered with the way out."""

import base64
import datetime as dt
import hashlib
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12 as pkcs12_format

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth import tls
from spark_kafka_eos.kafka.auth.stores import java, kind, pkcs12
from spark_kafka_eos.options import Secret, source_options
from tests.unit.kafka.auth.test_jks import KEYSTORE, TRUSTSTORE

# Made by Java 17's keytool: `-genkeypair -keyalg EC -storetype PKCS12 -storepass changeit -dname CN=a -alias a`, and b.
TWO_KEYS = base64.b64decode(
    "MIIGbwIBAzCCBhkGCSqGSIb3DQEHAaCCBgoEggYGMIIGAjCCAikGCSqGSIb3DQEHAaCCAhoEggIWMIICEjCCAQUGCyqGSIb3DQEMCgECoIG9MIG6"
    "MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBQQBxexdI3Bj6T+Xlo9CXUh+lN6CQICJxACASAwDAYIKoZIhvcNAgkFADAdBglghkgBZQME"
    "ASoEEAAgBZYUyjoOCsrH2a/GL6YEUJb/uP/Qa60rzJ/iBD7yAUUcGvMfg4Fwxvh8tEzT4ZoLQHEysuNYGZ5FcoAMQfBE/trLHdtJvVvorko1vnvB"
    "1Pp0PLEjwSNZy28sTUpZlV/nMTYwEQYJKoZIhvcNAQkUMQQeAgBhMCEGCSqGSIb3DQEJFTEUBBJUaW1lIDE3OTYwMjQ4MDE3NTgwggEFBgsqhkiG"
    "9w0BDAoBAqCBvTCBujBmBgkqhkiG9w0BBQ0wWTA4BgkqhkiG9w0BBQwwKwQUOegxBexqymkwXihsrm741qiPU4gCAicQAgEgMAwGCCqGSIb3DQIJ"
    "BQAwHQYJYIZIAWUDBAEqBBCIyVodNaFbnuiwi+cs7JNFBFD3+ZTaMVbLsTYZsz4vKA5Vtv1HgZ73QtmiOYsYZBDu05Wa1LjbqYodKSV4W5ZJF35q"
    "EqThEL9MGM1x8dbyOBNomxThSA1hCQ/qyQUPLYBXuTE2MBEGCSqGSIb3DQEJFDEEHgIAYjAhBgkqhkiG9w0BCRUxFAQSVGltZSAxNzk2MDI0ODA1"
    "MDA5MIID0QYJKoZIhvcNAQcGoIIDwjCCA74CAQAwggO3BgkqhkiG9w0BBwEwZgYJKoZIhvcNAQUNMFkwOAYJKoZIhvcNAQUMMCsEFB8uY52YA5rs"
    "TSD3pNfMT6ArX143AgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQK4IILZ8QAI3FovmG+mCKr4CCA0AVm2sLkXT9VnHBJp8uT5lT"
    "A38g4q9FEEjiICHf+fU0bTnKvL5O0P2LdWXxmv/CcnsUKyHH8Mk875DP3+UoxZsvLbutLpY8He25nWc6D4VLeGN/Z1IS4OVsAXTPLW5w0qHU2lE6"
    "1oGf3TuEXCi7zkBJvcKE5sRg12ACE+bfGnyYTWW5V30WlCMFuCQRTv7dytPkg5IB7pbvMam0FxnuB5KKKGf7oKAaKeY33oUgASTN6KonV8IEGLlX"
    "ATBbuv2VhHo5erBEBi7FG05baaHmQKlQlVe9WUVGnxPjqZqxvbwtBRyA+R3bn2uEO7JvHkspGBkOiBJv2g+at1iXtBiUeBqL8FccHyVYJK3JFAeY"
    "w1tMu7GoNJid/gwi3dSNN92YSnZnRDa9A5ETgoGS1W+7KA128dUnYGzWfkGubxBwiWkymeWEkqYkazzoJDQi8PpNaMserS90iz1eXQz2v8oFAyD1"
    "36MTG4hagfJkUZ2VxdCtvbsa1iR/4ChAJOpddt+asKYl1D7QBNwe1Hrydgrryn8ONQBN964+vvN/DiYIEgy521Wz+m4T/SFsN5wjA8+yQFrqASfC"
    "YdRLO/1gPkyCNUud4VMiefk3O0QavYQeGUDV9EABrZGZJc+I0rPMJ0rVA0iqfgLHY46eiKQ6SYIvda/5kT7L7lwTN/h1MxhgQbZmAe/uMiaDdVF9"
    "QmQgebQlRaGJ5RnCoXbkNo6x7ipBVxW1jEBq3J9zKERhwSdGqFemmwtFysIuXr3o88RS5bZY4AlkIbgqHXEBDB32NDZ2+zfWneQ1MWPBAmCqxOzr"
    "f4sjbZGhDwYqZQBFNKx2lhGRFyjTA2XrPAurBe3TLRHClmGBj++KDHjTDNSPMlb9B70FQzmzlnIWtrjGJpm+L4W640Pe8JRAsOBvPm1bT9/t8r+T"
    "Tg6iHRvBPaW7xh6/GQaVRohRBou5SrQmyu3YXT5JpG3D3hlGMvEbJR96HUgXMtgiW1wNTD75zm7HLslc0hk89QWYrSLe5BwmpVeYniFKOdoykuem"
    "liIXwrV65uT6cIU28yfYY5Rnwit4u07Yvp7vXEd/6NHIqYpawLIDKvGiohvhhsTvXKogFmZE3rOOPfFzME0wMTANBglghkgBZQMEAgEFAAQgKgcZ"
    "nRIiIy5n0UowzOi6MvJ3LTCrF7XzdfIPeZXbs70EFMId7iaBqPVaKMPIaaf92lFoLtz7AgInEA=="
)


@pytest.fixture(scope="module")
def identity():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    return key, builder.sign(key, hashes.SHA256())


@pytest.fixture
def store(tmp_path, identity):
    """Write a PKCS12 file with or without the key; returns its path."""
    key, certificate = identity

    def write(password: bytes | None = b"changeit", *, with_key: bool = True) -> str:
        encryption = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        own_key, own, others = (key, certificate, None) if with_key else (None, None, [certificate])
        path = tmp_path / "store.p12"
        path.write_bytes(pkcs12_format.serialize_key_and_certificates(b"client", own_key, own, others, encryption))
        return str(path)

    return write


def test_a_pkcs12_keystore_yields_chain_and_key_in_pem(store, identity):
    opened = pkcs12("keystore", store(), Secret("changeit"))
    assert x509.load_pem_x509_certificate(opened.certificates.encode()) == identity[1]
    assert opened.key is not None
    assert opened.key.reveal().startswith("-----BEGIN PRIVATE KEY-----")
    assert "PRIVATE" not in repr(opened)


def test_a_pkcs12_truststore_yields_the_authorities_in_pem(store, identity):
    opened = pkcs12("truststore", store(with_key=False), Secret("changeit"))
    assert x509.load_pem_x509_certificate(opened.certificates.encode()) == identity[1]
    assert opened.key is None


def test_a_store_without_password_needs_none(store):
    assert pkcs12("keystore", store(None), None).key is not None


def test_a_wrong_password_is_reported_but_not_shown(store):
    with pytest.raises(
        ConfigurationError, match=r"option 'kafka\.ssl\.keystore\.password'.*cannot be opened"
    ) as caught:
        pkcs12("keystore", store(), Secret("wr0ng"))
    assert "wr0ng" not in str(caught.value)


def test_a_keystore_must_hold_a_key(store):
    with pytest.raises(ConfigurationError, match="contains no private key"):
        pkcs12("keystore", store(with_key=False), Secret("changeit"))


def test_of_two_keys_nobody_knows_which_one_is_meant(tmp_path, identity):
    """Java's choice is that of its key manager; a client that takes the first may be somebody else."""
    refusal = "contains 2 private keys.*Use a keystore with one key and its chain"
    (tmp_path / "two.p12").write_bytes(TWO_KEYS)
    with pytest.raises(ConfigurationError, match=refusal):
        pkcs12("keystore", str(tmp_path / "two.p12"), Secret("changeit"))
    assert pkcs12("truststore", str(tmp_path / "two.p12"), Secret("changeit")).certificates.count("BEGIN") == 2
    key, certificate = identity
    pem = serialization.Encoding.PEM
    text = certificate.public_bytes(pem) + 2 * key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for name, written in (("lines.pem", text), ("one line.pem", text.replace(b"\n", b" "))):
        (tmp_path / name).write_bytes(written)
        with pytest.raises(ConfigurationError, match=refusal):
            tls.identity({"ssl_keystore_location": str(tmp_path / name)})


def test_without_the_extra_the_way_out_is_named(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ConfigurationError, match=r"spark-kafka-eos\[pkcs12\].*openssl pkcs12"):
        pkcs12("keystore", store(), None)


@pytest.mark.parametrize(
    ("content", "declared", "expected"),
    [
        (b"-----BEGIN", None, "PEM"),
        (b"-----BEGIN", "PEM", "PEM"),
        (b"\x30\x82", None, "PKCS12"),
        (b"\x30\x82", "JKS", "PKCS12"),
        (KEYSTORE, None, "JKS"),
        (KEYSTORE, "JKS", "JKS"),
        (KEYSTORE, "PKCS12", "JKS"),
    ],
)
def test_a_store_is_recognised_by_how_it_begins(tmp_path, content, declared, expected):
    (tmp_path / "s").write_bytes(content)
    assert kind("truststore", str(tmp_path / "s"), declared) == expected


@pytest.mark.parametrize(
    ("content", "declared"), [(b"-----BEGIN", "PKCS12"), (b"-----BEGIN", "JKS"), (b"\x30\x82", "PEM")]
)
def test_a_declared_type_that_is_wrong_is_refused(tmp_path, content, declared):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"option 'kafka\.ssl\.keystore\.type': .* not {declared}"):
        kind("keystore", str(tmp_path / "s"), declared)


@pytest.mark.parametrize("declared", [None, "JKS", "PKCS12"])
def test_a_jceks_file_is_refused_with_the_command_that_converts_it(tmp_path, declared):
    (tmp_path / "s.jks").write_bytes(b"\xce\xce\xce\xce\x00\x00\x00\x02")
    with pytest.raises(ConfigurationError, match=r"keytool -importkeystore -srckeystore .*s\.jks "):
        kind("keystore", str(tmp_path / "s.jks"), declared)


@pytest.fixture
def jks(tmp_path):
    """Write keytool's files; returns the paths of keystore and truststore."""
    (tmp_path / "key.jks").write_bytes(KEYSTORE)
    (tmp_path / "trust.jks").write_bytes(TRUSTSTORE)
    return str(tmp_path / "key.jks"), str(tmp_path / "trust.jks")


def test_a_jks_keystore_yields_chain_and_key_in_pem(jks):
    opened = java("keystore", jks[0], Secret("changeit"), Secret("keypass"))
    certificate = x509.load_pem_x509_certificate(opened.certificates.encode())
    assert opened.key is not None
    key = serialization.load_pem_private_key(opened.key.reveal().encode(), None)
    assert key.public_key() == certificate.public_key()
    assert "PRIVATE" not in repr(opened)


def test_a_key_without_a_password_of_its_own_is_read_with_the_stores(tmp_path):
    entries = KEYSTORE[:-20]  # what follows is their digest with the store's password, as Java makes it
    digest = hashlib.sha1("keypass".encode("utf-16-be") + b"Mighty Aphrodite" + entries).digest()
    (tmp_path / "key.jks").write_bytes(entries + digest)
    opened = java("keystore", str(tmp_path / "key.jks"), Secret("keypass"))
    assert opened == java("keystore", str(tmp_path / "key.jks"), Secret("keypass"), Secret("keypass"))


@pytest.mark.parametrize("password", [Secret("changeit"), None])
def test_a_jks_truststore_yields_the_authorities_in_pem(jks, password):
    opened = java("truststore", jks[1], password)
    assert x509.load_pem_x509_certificate(opened.certificates.encode()).subject.rfc4514_string() == "CN=ca"
    assert (
        "CERTIFICATE" in java("truststore", jks[0], password).certificates
    )  # a key's certificate is trusted, as in Java


@pytest.mark.parametrize(
    ("password", "key_password", "option"),
    [
        ("wr0ng", "keypass", "keystore.password"),
        ("changeit", "wr0ng", "key.password"),
        ("changeit", None, "key.password"),
    ],
)
def test_a_wrong_password_for_a_jks_file_is_reported_but_not_shown(jks, password, key_password, option):
    with pytest.raises(ConfigurationError) as caught:
        java("keystore", jks[0], Secret(password), key_password and Secret(key_password))
    assert caught.value.option == f"kafka.ssl.{option}"
    assert "wr0ng" not in str(caught.value)


def test_a_jks_keystore_must_hold_one_key(jks):
    with pytest.raises(ConfigurationError, match="contains no private key"):
        java("keystore", jks[1], Secret("changeit"))


def test_the_options_lead_to_all_this(store):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "SSL"}
    keystore = {"kafka.ssl.keystore.location": store(), "kafka.ssl.keystore.password": "changeit"}
    security = source_options(given | keystore).client.security
    assert security.certificate_pem is not None
    assert security.key_pem is not None
    truststore = {"kafka.ssl.truststore.location": store(with_key=False), "kafka.ssl.truststore.password": "changeit"}
    assert source_options(given | truststore).client.security.ca_pem is not None


def test_the_options_lead_to_jks_files_too(jks):
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "SSL"}
    keystore = {"kafka.ssl.keystore.location": jks[0], "kafka.ssl.keystore.password": "changeit"}
    truststore = {"kafka.ssl.truststore.location": jks[1], "kafka.ssl.truststore.type": "JKS"}
    security = source_options(given | keystore | truststore | {"kafka.ssl.key.password": "keypass"}).client.security
    assert security.certificate_pem is not None and security.key_pem is not None and security.ca_pem is not None
    assert security.key_password is None  # the key was opened here
