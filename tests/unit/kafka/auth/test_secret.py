"""A secret leaves only through reveal(), and a key does not go where Spark would show it."""

import copy
import dataclasses
import io
import json
import logging
import pickle
import pprint
import traceback

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.auth.secret import keys
from spark_kafka_eos.options import (
    Secret,
    Security,
    SinkOptions,
    SourceOptions,
    refuse_plain_keys,
    sink_options,
    source_options,
)

WORD = "correct horse battery staple"


@pytest.fixture
def secret() -> Secret:
    return Secret(WORD)


def test_reveal_is_the_way_to_it(secret):
    assert secret.reveal() == WORD


def test_no_way_of_printing_shows_it(secret):
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>10}"]
    shown += ["%s %r" % (secret, secret), "{}".format(secret)]  # noqa: UP031, UP032 - the old ways are the point
    shown += [str([secret]), str({"password": secret}), pprint.pformat({"password": secret}), str((secret,))]
    assert all("***" in text and WORD not in text for text in shown)


def test_a_dataclass_that_holds_it_does_not_show_it(secret):
    security = Security(protocol="SASL_SSL", mechanism="PLAIN", username="u", password=secret, key_pem=Secret("k3y"))
    shown = repr(security) + str(dataclasses.asdict(security)) + str(copy.deepcopy(security))
    assert WORD not in shown
    assert "k3y" not in shown


def test_a_log_line_does_not_show_it(secret):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.handle(logging.LogRecord("x", logging.INFO, "f", 1, "%s %r", (secret, {"p": secret}), None))
    assert stream.getvalue() == "*** {'p': ***}\n"


def test_a_traceback_that_captures_locals_does_not_show_it(secret):
    def fail(password: Secret) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError) as caught:
        fail(secret)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "password = ***" in shown


def test_it_pickles_for_the_executors_and_still_hides_itself(secret):
    back = pickle.loads(pickle.dumps(secret))
    assert back.reveal() == WORD
    assert repr(back) == "***"


def test_json_refuses_it(secret):
    with pytest.raises(TypeError, match="Secret"):
        json.dumps({"password": secret})


def test_it_has_no_dict_that_would_show_it(secret):
    with pytest.raises(TypeError):
        vars(secret)


def test_two_of_the_same_text_are_equal_and_the_text_itself_is_not(secret):
    assert secret == Secret(WORD)
    assert hash(secret) == hash(Secret(WORD))
    assert secret != Secret("other")
    assert secret != WORD


@pytest.mark.parametrize("kind", ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "OPENSSH PRIVATE KEY"])
@pytest.mark.parametrize(
    "name", ["kafka.ssl.keystore.key", "kafka.ssl.key.pem", "kafka.ssl.keystore.certificate.chain"]
)
def test_a_private_key_in_the_clear_is_refused_in_any_position(name, kind):
    certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
    text = f"{certificate}-----BEGIN {kind}-----\nk3y\n-----END {kind}-----"
    with pytest.raises(ConfigurationError, match=r"query plans.*kafka\.ssl\.key\.password") as caught:
        refuse_plain_keys({"subscribe": "t", name: text})
    assert caught.value.option == name
    assert "k3y" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nMII",
        "-----BEGIN CERTIFICATE-----\nMII",
        "/etc/kafka/PRIVATE KEY",
        "",
        None,
    ],
)
def test_an_encrypted_key_a_certificate_and_a_path_may_pass(text):
    refuse_plain_keys({"kafka.ssl.keystore.key": text})


@pytest.mark.parametrize("side", ["sink", "source"])
def test_ledger_keys_are_read_where_they_are_and_shown_nowhere(side, monkeypatch, tmp_path):
    (tmp_path / "key").write_text(f"{WORD} of the file\n")
    monkeypatch.setenv("LEDGER_KEY", f"{WORD} of the environment")
    options: SinkOptions | SourceOptions
    given = f"{WORD} as text, env:LEDGER_KEY,file:{tmp_path / 'key'}"
    if side == "sink":
        sink = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "ledgerKey": given})
        options, keys = sink, sink.ledger_key
    else:
        of_sink = {"sink.kafka.transactional.id": "t", "sink.ledgerKey": given}
        source = source_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t", **of_sink})
        assert source.sink is not None
        options, keys = source, source.sink.keys
    assert [key.reveal() for key in keys] == [f"{WORD} as text", f"{WORD} of the environment", f"{WORD} of the file"]
    assert WORD not in repr(options) + str(dataclasses.asdict(options)) + pprint.pformat(options)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sh0rt", "the text has 5"),
        (f"{WORD},sh0rt", "the text has 5"),
        ("env:SHORT_KEY", "SHORT_KEY has 5"),
        ("env:NO_SUCH_KEY", "NO_SUCH_KEY has 0"),
        ("file:{short}", "has 5"),
        ("file:{binary}", "contains no text in UTF-8"),
        ("file:{none}", "cannot be read: No such file or directory"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_without_its_text(given, said, monkeypatch, tmp_path):
    monkeypatch.setenv("SHORT_KEY", "sh0rt")
    paths = {name: tmp_path / name for name in ("short", "binary", "none")}
    paths["short"].write_text("sh0rt")
    paths["binary"].write_bytes(b"sh0rt\xff" * 10)
    options = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "ledgerKey": given.format(**paths)}
    with pytest.raises(ConfigurationError, match="option 'ledgerKey'") as caught:
        sink_options(options)
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert said in shown
    assert "sh0rt" not in shown and WORD not in shown


def test_a_key_has_at_least_sixteen_characters():
    assert [key.reveal() for key in keys(f"{'k' * 16},{'l' * 17}")] == ["k" * 16, "l" * 17]
    with pytest.raises(ValueError, match="a key has at least 16 characters, but the text has 15"):
        keys("k" * 15)
