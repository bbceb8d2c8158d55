"""Tokens from a user's function: its contract, and errors that show neither token nor exception text."""

from __future__ import annotations

import re
import time
from itertools import count

import pytest

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import sasl_exchange
from spark_kafka_eos.kafka.auth.oauth import Tokens, librdkafka_callback
from spark_kafka_eos.kafka.auth.token_provider import provide
from spark_kafka_eos.kafka.auth.tokens import TokenProvider
from spark_kafka_eos.options import Secret, Security
from tests.pages import ROOT

numbers = count()


@pytest.fixture
def provider(tmp_path, monkeypatch):
    """`provider(body)`: one whose function, with the parameter `config`, has this body."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(body: str) -> TokenProvider:
        module = f"provider_{next(numbers)}"
        (tmp_path / f"{module}.py").write_text(f"import time\ncalls = []\ndef token(config):\n    {body}\n")
        return TokenProvider(function=f"{module}:token", config=Secret("pool-1"), extensions=(("pool", "p1"),))

    return make


def bearer(provider: TokenProvider) -> Security:
    return Security(protocol="SASL_SSL", mechanism="OAUTHBEARER", token_source=provider)


def test_the_function_gets_the_configured_text_and_its_token_goes_to_the_broker(provider):
    sent = []

    def accept(data):
        sent.append(data)
        return b""

    sasl_exchange(bearer(provider("return config, time.time() + 60")), "broker:9092", accept, tokens=Tokens())
    assert sent == [b"n,,\x01auth=Bearer pool-1\x01pool=p1\x01\x01"]


def test_the_function_is_called_again_before_the_token_expires(provider):
    security = bearer(provider('calls.append(1); return f"t{len(calls)}", time.time() + 100'))
    now = [0.0]
    held = Tokens(clock=lambda: now[0])
    found = []
    for now[0] in (0.0, 79.0, 81.0, 159.0, 162.0):
        found.append(held.get(security, 5).reveal())
    assert found == ["t1", "t1", "t2", "t2", "t3"]


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        ('raise ValueError("s3cret")', AuthenticationFailed, r"failed: ValueError at .*provider_\d+\.py:4"),
        ('raise ConnectionError("s3cret")', BrokerUnreachable, "failed: ConnectionError at"),
        ('return "s3cret"', AuthenticationFailed, r"did not return \(token, expiry\)"),
        ('return b"s3cret", time.time() + 60', AuthenticationFailed, "did not return"),
        ('return "s3cret", "soon"', AuthenticationFailed, "did not return"),
        ('return "s3cret\\x01", time.time() + 60', AuthenticationFailed, "did not return"),
        ('return "s3cret", (time.time() + 60) * 1000', AuthenticationFailed, "If these are milliseconds, divide by"),
        ('return "s3cret", time.time() - 1', AuthenticationFailed, "a token that has expired"),
        ('return "s3cret", float("nan")', AuthenticationFailed, "a token that has expired"),
    ],
)
def test_what_goes_wrong_in_the_function_is_told_without_what_it_knows(provider, body, kind, why):
    with pytest.raises(kind, match=why) as caught:
        provide(provider(body))
    assert "s3cret" not in f"{caught.value}{caught.value.__cause__}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_an_error_of_this_package_says_what_the_function_wants_to_say(provider):
    body = 'from spark_kafka_eos import AuthenticationFailed; raise AuthenticationFailed("the pool is closed")'
    with pytest.raises(AuthenticationFailed, match="the pool is closed"):
        provide(provider(body))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("no_such_module_at_all:token", "cannot be imported: No module named 'no_such_module_at_all'.*--py-files"),
        ("json:token", "json has no function token"),
    ],
)
def test_a_function_that_does_not_exist_names_the_option(function, why):
    with pytest.raises(ConfigurationError, match=why) as caught:
        provide(TokenProvider(function=function))
    assert caught.value.option == "kafka.sasl.oauthbearer.token.provider"


def test_a_refused_token_names_the_function(provider):
    chosen = provider('calls.append(1); return f"{config}-{len(calls)}", time.time() + 60')
    tokens, sent = Tokens(), []

    def refuse(data):
        sent.append(data)
        return b"{}"

    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match=f"rejected the token of {chosen.function}") as caught:
            sasl_exchange(bearer(chosen), "broker:9092", refuse, tokens=tokens)
        assert "pool-1" not in str(caught.value)
    assert [number in b"".join(sent) for number in (b"pool-1-1", b"pool-1-2", b"pool-1-3")] == [True, True, False]


def test_librdkafka_calls_the_same_function(provider):
    expiry = time.time() + 60
    callback = librdkafka_callback(bearer(provider(f"return config, {expiry}")))["oauth_cb"]
    assert callback("") == ("pool-1", expiry)
    assert librdkafka_callback(Security()) == {}


def test_the_example_of_the_page_is_a_provider(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "security.md").read_text()
    (tmp_path / "company_kafka.py").write_text(re.findall(r"```python\n(import .*?)```", page, re.DOTALL)[0])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "token").write_text("abc")
    function = re.findall(r'"kafka.sasl.oauthbearer.token.provider": "([\w:]+)"', page)[0]
    token, expiry = provide(TokenProvider(function=function, config=Secret(str(tmp_path / "token"))))
    assert token == "abc" and 0 < expiry - time.time() <= 300
