"""What Kafka's own clients read, with these as the witness: every property, property files, and texts of login and
certificates.
"""

from __future__ import annotations

import base64
import contextlib
import random
import re
import ssl
import subprocess
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import tls_context
from spark_kafka_eos.kafka.auth.jaas import login
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.properties import _entries
from spark_kafka_eos.options.table import OPTIONS
from spark_kafka_eos.testing.jars import DEFAULT_VERSION, class_path
from spark_kafka_eos.testing.java import java
from tests.certificates import issue
from tests.conftest import KAFKA_35, KAFKA_39, KAFKA_OLDEST
from tests.pages import ROOT

pytestmark = pytest.mark.broker


def properties(version: str, client: str) -> set[str]:
    """All public properties, from the documentation that the class prints (`ConfigDef.toHtml`)."""
    command = [str(java()), "-cp", class_path(version), f"org.apache.kafka.clients.{client}"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return set(re.findall(r'<h4><a id="([^"]+)"></a>', page))


Question = tuple[str, *tuple[str | None, ...]]
OfJava = Callable[[Iterable[Question]], list[list[str] | None]]


@pytest.fixture(scope="module")
def of_java() -> Iterator[OfJava]:
    """The answers of Kafka's client, in one JVM, to questions of `ClientFiles`; None where it refuses the text."""
    command = [str(java()), "-cp", class_path(), str(ROOT / "tests" / "java" / "ClientFiles.java")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        asked, answers = process.stdin, process.stdout
        assert asked is not None
        assert answers is not None

        def ask(questions: Iterable[Question]) -> list[list[str] | None]:
            lines = [f"{kind} {' '.join(map(encoded, texts))}\n" for kind, *texts in questions]
            found: list[list[str] | None] = []
            for start in range(0, len(lines), 100):  # fewer than a pipe takes, so that neither side waits for the other
                some = lines[start : start + 100]
                asked.writelines(some)
                asked.flush()
                for line in (answers.readline() for _ in some):
                    assert line, f"Java ended: {process.wait(60)}"
                    found.append(None if line == "-\n" else line.split())
            return found

        yield ask
        asked.close()


def encoded(text: str | None) -> str:
    return "." if text is None else base64.b64encode(text.encode("utf-16-be")).decode() or "="


def decoded(word: str) -> str:
    return "" if word == "=" else base64.b64decode(word).decode("utf-16-be", "surrogatepass")


@pytest.mark.parametrize("client", ["consumer.ConsumerConfig", "producer.ProducerConfig", "admin.AdminClientConfig"])
@pytest.mark.parametrize("version", [KAFKA_OLDEST, KAFKA_35, KAFKA_39, DEFAULT_VERSION])
def test_no_property_of_kafkas_clients_is_unknown(version, client):
    found = {f"kafka.{name}" for name in properties(version, client)}
    assert len(found) > 60
    assert (
        found - {name for row in OPTIONS for name in (row.name, *row.also)} - REFUSED.keys() - WITHOUT_EFFECT.keys()
        == set()
    )


SIGNS = ["a.b.Plain", "required", "username", "=", "=", ";", " ", "\n", "\t", "\r", "\x0b", '"', "'", '"x y"', "'x y'"]
SIGNS += ["\\", "\\n", "\\101", "\\7", "\\400", "\\0", '"a\\"b"', "'it\\'s'", "/", "//", "/*", "*/", "#", "x", "$", "_"]
SIGNS += ["1", "-", ".", "-1", "a-b", ",", ":", "@", "+", "(", "Ä", "€", "\x85", "\xa0", "😀", 'p="q"']
MODULES = ["a.b.PlainLoginModule", "Plain", "'a.Plain'", ""]
FLAGS = ["required", "REQUIRED", "Optional", "sufficient", "requisite", "bad", ""]


def login_text(chance: random.Random) -> str:
    if chance.random() < 0.3:
        return "".join(chance.choices(SIGNS, k=chance.randrange(1, 14)))
    text = f"{chance.choice(MODULES)} {chance.choice(FLAGS[: chance.choice((5, 7))])} "
    for _ in range(chance.randrange(4)):
        text += chance.choice(["p", "username", "a.b-c", '"k"', "extension_x"]) + chance.choice(
            ["=", "=", " = ", "=\n"]
        )
        quote = chance.choice(['"', "'", ""])
        text += (
            quote + "".join(chance.choices(SIGNS, k=chance.randrange(1, 5))) + chance.choice([quote, quote, quote, ""])
        )
        text += chance.choice([" ", "", "\n", " // c\n", "/* c */"])
    return text + chance.choice([";", ";", ";", " ;", "", "; ", ";//x", ";x"])


def ours(text: str) -> list[str] | None:
    try:
        module, options = login(Secret(text))
    except ValueError:
        return None
    return [module, *sorted(f"{name}={value.reveal()}" for name, value in options.items())]


def test_a_login_configuration_is_read_as_java_reads_it(of_java: OfJava) -> None:
    chance = random.Random(20261128)
    texts = [login_text(chance) for _ in range(20_000)]
    accepted = 0
    for text, answer in zip(texts, of_java(("jaas", text) for text in texts), strict=True):
        words = None if answer is None else list(map(decoded, answer))
        expected = words and [
            words[0].rpartition(".")[2],
            *sorted(f"{name}={value}" for name, value in zip(words[1::2], words[2::2], strict=True)),
        ]
        assert ours(text) == expected, text
        accepted += answer is not None
    assert accepted > 3_000


SYNTAX = [
    "\\",
    "\\",
    "\\",
    "\n",
    "\r",
    "\r\n",
    "=",
    ":",
    "#",
    "!",
    " ",
    "\t",
    "\f",
    "a",
    "b",
    "key",
    "\\u00e4",
    "\\u",
    "D83D",
]
SYNTAX += ["\\uD83D\\uDE00", "t", "n", "\x00", "\x0b", "\x1c", "\x85", "\xa0", "\xfc", "7"]
ENDS_IN_A_JOINT = re.compile(rb"(^|[\r\n])[ \t\f]*\\[\r\n]*$")
BEYOND_ISO = ["\u2028", "\u2029", "\ufeff", "€", "😀", "１"]


def properties_of_java(of_java: OfJava, encoding: str, files: Iterable[bytes]) -> list[dict[str, str] | None]:
    """What java.util.Properties reads of files in this encoding, None where it refuses one."""
    answers = of_java(("properties", encoding, content.decode("iso-8859-1")) for content in files)
    texts = (None if answer is None else list(map(decoded, answer)) for answer in answers)
    return [words if words is None else dict(zip(words[::2], words[1::2], strict=True)) for words in texts]


def entries(content: bytes) -> dict[str, str] | None:
    try:
        return {name: value for _, name, value in _entries(content)}
    except ValueError:
        return None


def has_half_a_character(answer: dict[str, str] | None) -> bool:
    return answer is not None and any(
        "\ud800" <= letter <= "\udfff" for pair in answer.items() for text in pair for letter in text
    )


def is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_read_otherwise(content: bytes, encoding: str) -> bool:
    """Whether the page says so, or Java's reading is nothing to follow."""
    if encoding == "iso-8859-1" and is_utf_8(content) and not content.isascii():
        return True  # read as UTF-8, which the page says
    if content.startswith("\ufeff".encode()):
        return True  # Java takes the mark for a part of the first name
    # Of which Java makes an entry without a name and a value, unless the line ends with CR LF.
    return bool(ENDS_IN_A_JOINT.search(content))


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-8"])
def test_a_property_file_is_read_as_java_reads_it(of_java: OfJava, encoding: str) -> None:
    rng = random.Random(20261127)
    parts = SYNTAX if encoding == "iso-8859-1" else SYNTAX + BEYOND_ISO
    drawn = ("".join(rng.choices(parts, k=rng.randrange(1, 16))).encode(encoding) for _ in range(5_000))
    files = [content for content in drawn if not is_read_otherwise(content, encoding)]
    answers = properties_of_java(of_java, encoding, files)
    for content, answer in zip(files, answers, strict=True):
        assert entries(content) == (None if has_half_a_character(answer) else answer), content
    assert len(files) > 4_000
    assert answers.count(None) > 100


def test_every_file_in_conf_is_read_as_java_reads_it(of_java: OfJava) -> None:
    files = sorted((ROOT / "conf").glob("*.properties"))
    assert len(files) > 5
    answers = properties_of_java(of_java, "utf-8", [path.read_bytes() for path in files])
    for path, answer in zip(files, answers, strict=True):
        assert entries(path.read_bytes()) == answer, path.name


@pytest.fixture(scope="module")
def issued(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """Certificates of two authorities in PEM, and the client's certificate with its key, PKCS #8."""
    folders = [tmp_path_factory.mktemp("authority") for _ in range(2)]
    authorities = [issue(folder).ca.read_text() for folder in folders]
    return authorities, (folders[0] / "client.pem").read_text()


def blocks(pem: str) -> list[str]:
    return re.findall(r"-----BEGIN .*?-----END [A-Z ]*-----", pem, re.DOTALL)


def shapes(pem: str) -> dict[str, str]:
    """The same PEM text as users have it."""
    lines = pem.splitlines()
    return {
        "as it is": pem,
        "one line": " ".join(lines),
        "tabs": "\t".join(lines),
        "indented": textwrap.indent(pem, "    "),
        "carriage returns": "\r\n".join(lines),
        "empty lines": "\n\n".join(lines) + "\n\n",
        "without the last line feed": pem.rstrip(),
        "with a text before": "subject=/CN=ca\n" + pem,
        "in one word": re.sub(r"(?<=[A-Za-z0-9+/=])\n(?=[A-Za-z0-9+/=])", "", pem),
    }


def trusted(pem: str) -> list[str]:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "SSL"}
    context = tls_context(source_options(options | {"kafka.ssl.truststore.certificates": pem}).client.security)
    return sorted(base64.b64encode(each).decode() for each in context.get_ca_certs(binary_form=True))


def test_certificates_are_trusted_however_their_lines_are_as_by_java(
    of_java: OfJava, issued: tuple[list[str], str]
) -> None:
    authorities, _ = issued
    texts = [(pem, text) for pem in (authorities[0], "".join(authorities)) for text in shapes(pem).values()]
    for (pem, text), answer in zip(texts, of_java(("trust", text) for _, text in texts), strict=True):
        expected = trusted(pem)
        assert len(expected) == len(blocks(pem))
        assert trusted(text) == expected, text
        assert trusted(text.replace("\n", "\\n")) == expected, "a line feed that nobody has replaced"
        alone = expected if "\n" in text else trusted(blocks(pem)[-1])  # of several in one line Java takes the last
        assert answer == alone, text


@pytest.mark.parametrize("password", [None, "changeit"])
def test_a_clients_certificate_and_key_are_read_however_their_lines_are_as_by_java(
    of_java: OfJava, issued: tuple[list[str], str], password: str | None
) -> None:
    key, certificate = blocks(issued[1])
    if password is not None:
        loaded = serialization.load_pem_private_key(key.encode(), None)
        encryption = serialization.BestAvailableEncryption(password.encode())
        pkcs8 = serialization.PrivateFormat.PKCS8
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        key = loaded.private_bytes(serialization.Encoding.PEM, pkcs8, encryption).decode()
    pairs = list(zip(shapes(certificate + "\n").values(), shapes(key).values(), strict=True))
    answers = of_java(("identity", chain, private, password) for chain, private in pairs)
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "SSL"}
    options |= {} if password is None else {"kafka.ssl.key.password": password}
    for (chain, private), answer in zip(pairs, answers, strict=True):
        assert (answer is None) is (password is not None), chain  # PBES2, as openssl encrypts keys, is new in Java 19
        given = {"kafka.ssl.keystore.certificate.chain": chain, "kafka.ssl.keystore.key": private}
        tls_context(source_options(options | given).client.security)


PROTOCOLS = [(None, None), ("TLSv1.2", None), ("TLS", None), ("SSL", None), (None, "TLSv1.2"), (None, "TLSv1.3")]
PROTOCOLS += [
    (None, "TLSv1.2,TLSv1.1"),
    (None, " TLSv1.2 , TLSv1.3 "),
    ("TLSv1.2", "TLSv1.3"),
    (None, "foo"),
    (None, ""),
]
PROTOCOLS += [(None, "tlsv1.2"), ("TLSv1.1", "TLSv1.3,TLSv1.2"), (None, "TLSv1.1")]
OF_OPENSSL = {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}


def test_the_versions_of_tls_are_those_that_java_offers_without_the_broken_ones(of_java: OfJava) -> None:
    for (protocol, enabled), answer in zip(PROTOCOLS, of_java(("protocols", *pair) for pair in PROTOCOLS), strict=True):
        options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "kafka.security.protocol": "SSL"}
        options |= {"kafka.ssl.protocol": protocol} if protocol else {}
        options |= {} if enabled is None else {"kafka.ssl.enabled.protocols": enabled}
        offered: list[str] | None = None
        with contextlib.suppress(ConfigurationError):
            context = tls_context(source_options(options).client.security)
            newest = min(context.maximum_version, ssl.TLSVersion.TLSv1_3) if context.maximum_version > 0 else 0x304
            offered = [name for version, name in OF_OPENSSL.items() if context.minimum_version <= version <= newest]
        expected = answer and [name for name in answer if name in OF_OPENSSL.values()]
        assert offered == (expected or None), (protocol, enabled)
