"""PEM text in the lines that OpenSSL reads."""

import pytest

from spark_kafka_eos.kafka.auth.pem import in_lines

BODY = "QUJD" * 20
BLOCK = f"-----BEGIN CERTIFICATE-----\n{BODY[:64]}\n{BODY[64:]}\n-----END CERTIFICATE-----"
OLD_KEY = """-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,0102

QUJD
-----END EC PRIVATE KEY-----"""


@pytest.mark.parametrize(
    "text",
    [
        BLOCK,
        BLOCK.replace("\n", " "),
        BLOCK.replace("\n", "\\n"),
        BLOCK.replace("\n", "\\r\\n") + "\\n",
        BLOCK.replace("\n", "\n\t  "),
        f"a comment\n{BLOCK}\nanother - one",
    ],
)
def test_white_space_and_what_is_around_a_block_do_not_matter(text):
    assert in_lines(text) == BLOCK
    assert in_lines(f"{text} {text}") == f"{BLOCK}\n{BLOCK}"


def test_the_headers_of_an_encrypted_key_stay_in_their_lines():
    assert in_lines(OLD_KEY.replace("\n", "\n    ")) == OLD_KEY


@pytest.mark.parametrize("text", ["", "s3cret", "-----BEGIN CERTIFICATE-----", BLOCK.replace("END CERT", "END KEY")])
def test_a_text_without_a_block_is_left_to_openssl(text):
    assert in_lines(text) == text
