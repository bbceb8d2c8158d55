"""Tokens from a server on loopback and their exchange with a scripted broker; secrets stay out of messages."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import ssl
import threading
import time
from dataclasses import replace

import pytest

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError
from spark_kafka_eos.kafka.auth.authentication import sasl_exchange
from spark_kafka_eos.kafka.auth.oauth import Tokens, request_token
from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint
from spark_kafka_eos.options import Secret, Security
from tests.certificates import Certificates, issue, issue_chain
from tests.oauth import OAuthServer, serve

SECRET = "hunter2+/%:x"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return issue(tmp_path_factory.mktemp("oauth"))


@pytest.fixture(scope="module")
def listening(certificates):
    with serve(OAuthServer({"spark": SECRET}), certificates) as server:
        yield server


@pytest.fixture
def server(listening):
    listening.answer = None
    listening.requests.clear()
    listening.read.clear()
    return listening


@pytest.fixture
def client(server, certificates):
    """`client(secret, **endpoint)`: the security of a client of the server."""

    def make(secret=SECRET, **endpoint):
        endpoint = {"url": server.token_url, "ca_location": str(certificates.ca)} | endpoint
        return Security(
            protocol="SASL_SSL",
            mechanism="OAUTHBEARER",
            username="spark",
            password=Secret(secret),
            token_source=TokenEndpoint(**endpoint),
        )

    return make


def refused(error, security, why):
    with pytest.raises(error, match=why) as caught:
        request_token(security, 5)
    shown = f"{caught.value}{caught.value!r}{caught.value.__cause__}{security}"
    assert SECRET not in shown and "wrong" not in shown
    return str(caught.value)


def test_a_token_and_its_life_come_from_the_token_endpoint(client, server, caplog):
    caplog.set_level(logging.DEBUG)
    token, lifetime = request_token(client(scope="read write"), 5)
    assert (token.count("."), lifetime) == (2, 3600.0)
    assert server.requests == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]
    assert SECRET not in caplog.text and token not in caplog.text


def test_id_and_secret_are_encoded_only_where_the_server_expects_it(client, server):
    server.clients["encoded"] = "hunter2%2B%2F%25%3Ax"
    request_token(replace(client(header_urlencode=True), username="encoded"), 5)
    refused(AuthenticationFailed, client(header_urlencode=True), "HTTP 401 invalid_client")
    del server.clients["encoded"]


def test_a_wrong_secret_names_the_client_and_not_what_the_server_said_about_it(client):
    said = refused(AuthenticationFailed, client("wrong"), "rejected client 'spark': HTTP 401 invalid_client")
    assert "Nothing was committed. Check client id, client secret and scope." in said


def test_the_servers_query_is_not_shown(client, server):
    said = refused(AuthenticationFailed, client("wrong", url=f"{server.token_url}?key=hidden"), "HTTP 401")
    assert server.token_url in said and "hidden" not in said


@pytest.mark.parametrize(("status", "code"), [(400, "invalid_scope"), (403, ""), (404, "A" * 50)])
def test_a_refusal_shows_the_rfcs_code_if_there_is_one(client, server, status, code):
    server.answer = status, json.dumps({"error": code}).encode()
    said = refused(AuthenticationFailed, client(), f"HTTP {status}")
    assert ("A" * 50) not in said and (code == "A" * 50 or code in said)


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_server_in_trouble_may_be_asked_again(client, server, status):
    server.answer = status, b"<html>"
    refused(BrokerUnreachable, client(), f"failed: HTTP {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["token_url", "keys_url"], ids=["to the same server", "to another, in plain text"])
def test_a_redirect_is_not_followed_with_the_secret(client, server, status, where):
    """Python would follow the first three, by GET, with the header Authorization."""
    server.answer = status, getattr(server, where).rpartition("/")[0].encode() + b"/elsewhere"
    refused(AuthenticationFailed, client(), f"HTTP {status}")
    assert len(server.requests) == 1
    assert server.read == []


@pytest.mark.parametrize(("status", "why"), [(200, "contains no access token"), (400, r"HTTP 400\. Nothing")])
def test_an_answer_without_an_end_takes_no_memory(client, server, status, why):
    """Of more than a megabyte only the beginning is read, so there is neither a token nor a reason in it."""
    server.answer = status, json.dumps({"access_token": "t", "error": "e", "more": "x" * (3 << 20)}).encode()
    refused(AuthenticationFailed, client(), why)


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": "a\\u0001b"}', b'{"access_token": ""}'],
)
def test_an_answer_without_a_token_is_an_error_that_does_not_show_it(client, server, body):
    server.answer = 200, body
    refused(AuthenticationFailed, client(), "access token")


def test_a_token_without_a_life_is_asked_for_each_time(client, server):
    server.answer = 200, b'{"access_token": "abc"}'
    assert request_token(client(), 5) == ("abc", 0.0)
    held = Tokens()
    assert [held.get(client(), 5).reveal() for _ in range(3)] == ["abc"] * 3
    assert len(server.requests) == 4


def test_a_server_that_is_not_trusted_gets_no_secret(client, server, tmp_path):
    refused(AuthenticationFailed, client(ca_location=str(issue(tmp_path).ca)), r"is not trusted: .*kafka\.https\.ca")
    refused(AuthenticationFailed, client(ca_location=None), "is not trusted")
    of_another_name = server.token_url.replace("127.0.0.1", "localhost")
    refused(AuthenticationFailed, client(url=of_another_name), "is not trusted: .*localhost")
    assert server.requests == []


def test_a_server_is_trusted_by_its_own_certificate_or_its_issuers_alone_as_in_java(client, tmp_path):
    chain = issue_chain(tmp_path)
    material = Certificates(ca=chain.root, broker_keystore=chain.keystore, client_keystore=chain.keystore)
    with serve(OAuthServer({"spark": SECRET}), material) as server:
        for store in (chain.root, chain.intermediate, chain.leaf):
            assert request_token(client(url=server.token_url, ca_location=str(store)), 5)[0]


def test_the_authority_may_be_text_and_nonsense_names_the_option(client, certificates, server):
    assert request_token(client(ca_location=None, ca_pem=certificates.ca.read_text()), 5)[0]
    with pytest.raises(ConfigurationError, match=r"kafka\.https\.ca\.location"):
        request_token(client(ca_location=None, ca_pem="nonsense"), 5)


def test_a_server_that_is_not_there_is_unreachable(client):
    refused(BrokerUnreachable, client(url="https://127.0.0.1:1/token"), "cannot connect to")


@pytest.mark.parametrize("part", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_server_that_answers_byte_by_byte_is_given_up_after_the_timeout(client, certificates, scheme, part):
    """All connections of the process wait for the token, so this must not take longer than the timeout."""
    hung_up = threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker_keystore)

    def drip():
        connection, _ = listener.accept()
        if scheme == "https":
            connection = context.wrap_socket(connection, server_side=True)
        with contextlib.suppress(OSError), connection as answering:
            answering.recv(65_536)
            answering.sendall(part)
            while not hung_up.wait(0.2):
                answering.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        started = time.monotonic()
        try:
            url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}/token"
            with pytest.raises(BrokerUnreachable, match="cannot connect to the token endpoint .*timed out"):
                request_token(client(url=url), 1.0)
            assert time.monotonic() - started < 60
        finally:
            hung_up.set()
            thread.join(10)
    assert not thread.is_alive()


_BODY = json.dumps({"access_token": "a" * 600, "expires_in": 300}).encode()
_SIZE = b"Content-Length: %d\r\n\r\n" % len(_BODY)
_CHUNK = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(_BODY)
_NESTED = b"Content-Length: 100000\r\n\r\n" + b"[" * 100_000


@pytest.fixture
def answering():
    """`answering(answer)`: the URL of a server that sends these bytes and hangs up."""
    with contextlib.ExitStack() as stack:

        def listen(answer):
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run():
                accepted, _ = listener.accept()
                with accepted:
                    accepted.recv(65_536)
                    accepted.sendall(answer)
                    accepted.shutdown(socket.SHUT_WR)
                    while accepted.recv(65_536):
                        pass

            thread = threading.Thread(target=run)
            thread.start()
            stack.callback(thread.join, 10)
            return f"http://127.0.0.1:{listener.getsockname()[1]}/token"

        yield listen


@pytest.mark.parametrize(
    "answer",
    [
        b"200 OK\r\n" + _SIZE,
        b"200 OK\r\n" + _SIZE + _BODY[:300],
        b"200 OK\r\n" + _SIZE + _BODY[:-1],
        b"200 OK\r\n" + _CHUNK + _BODY[:300],
        b"503 Busy\r\n" + _SIZE + _BODY[:300],
        b"503 Busy\r\n" + _CHUNK + _BODY[:300],
        b"503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + _BODY[:300],
        b"503 Busy\r\n" + _NESTED,
    ],
)
def test_an_answer_that_is_cut_off_or_nonsense_of_a_server_in_trouble_may_be_asked_for_again(client, answering, answer):
    refused(BrokerUnreachable, client(url=answering(b"HTTP/1.1 " + answer)), "the token endpoint")


def test_an_answer_of_nothing_but_brackets_contains_no_token(client, answering):
    refused(AuthenticationFailed, client(url=answering(b"HTTP/1.1 200 OK\r\n" + _NESTED)), "contains no access token")


def test_a_token_is_kept_for_four_fifths_of_its_life_and_per_client(client):
    asked = []
    now = [0.0]

    def request(security, timeout):
        asked.append(security)
        return f"token-{len(asked)}", 100.0

    held = Tokens(request, lambda: now[0])
    one, other = client("one"), client("other")
    assert [held.get(one, 5).reveal(), held.get(other, 5).reveal(), held.get(one, 5).reveal()] == [
        "token-1",
        "token-2",
        "token-1",
    ]
    now[0] = 79.9
    assert held.get(one, 5).reveal() == "token-1"
    now[0] = 80.0
    assert held.get(one, 5).reveal() == "token-3"
    held.forget(one)
    assert held.get(one, 5).reveal() == "token-4"


def test_the_exchange_sends_the_token_and_the_extensions(client, server):
    server.answer = 200, b'{"access_token": "abc", "expires_in": 60}'
    sent = []

    def accept(data):
        sent.append(data)
        return b""

    for extensions in ((), (("logicalCluster", "lkc-1"), ("pool", "p 1"))):
        sasl_exchange(client(extensions=extensions), "broker:9092", accept, tokens=Tokens())
    assert sent == [
        b"n,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01pool=p 1\x01\x01",
    ]


@pytest.mark.parametrize("ends", ["with an error", "silently", "with the connection"])
def test_a_token_that_the_broker_refuses_is_acknowledged_and_not_used_again(client, server, ends):
    sent = []

    def refuse(data):
        sent.append(data)
        if len(sent) == 1:
            return b'{"status": "invalid_token"}'
        if ends == "silently":
            return b""
        if ends == "with the connection":
            raise BrokerUnreachable("broker:9092: the broker closed the connection")
        raise AuthenticationFailed("broker:9092 rejected user 'spark'")

    tokens = Tokens()
    with pytest.raises(AuthenticationFailed, match=r"broker:9092 rejected .* 'spark'") as caught:
        sasl_exchange(client(), "broker:9092", refuse, tokens=tokens)
    assert sent[1:] == [b"\x01"]
    assert "Bearer" not in str(caught.value)
    tokens.get(client(), 5)
    assert len(server.requests) == 2
