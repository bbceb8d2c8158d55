"""An OAuth server for tests: a token endpoint behind TLS and the keys for the broker, both on loopback; that broker."""

from __future__ import annotations

import base64
import json
import math
import os
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlencode
from urllib.request import Request, urlopen

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, EmbeddedKafka
from tests.certificates import Certificates, issue

ISSUER = "https://issuer.test"
CLIENT, SECRET = "spark", "hunter2"
_KAFKA = "org.apache.kafka.common.security.oauthbearer"


class OAuthServer:
    """Issues signed tokens to `clients` (id -> secret). `answer`, if set, is sent instead: (status, body)."""

    def __init__(self, clients: dict[str, str]) -> None:
        self.clients = clients
        self.lifetime = 3600.0
        self.audience = "kafka"
        self.answer: tuple[int, bytes] | None = None
        self.requests: list[dict[str, list[str]]] = []
        self.read: list[tuple[str, str | None]] = []  # paths that were read, each with its Authorization
        self.token_url = self.keys_url = ""
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def token(self, client: str, scope: str) -> str:
        """A JWT as RFC 7519 and RFC 9068 have it, signed with RS256."""
        now = time.time()
        claims = {"iss": ISSUER, "aud": self.audience, "sub": client, "scope": scope.split() or ["all"]}
        times = {"iat": int(now), "exp": math.ceil(now + self.lifetime)}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "test"}, claims | times)
        signed = b".".join(_base64(json.dumps(part).encode()) for part in parts)
        return b".".join([signed, _base64(self._key.sign(signed, padding.PKCS1v15(), hashes.SHA256()))]).decode()

    def keys(self) -> dict[str, object]:
        """The JSON Web Key Set (RFC 7517) that the broker reads."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64(number.to_bytes(-(-number.bit_length() // 8))).decode() for number in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "test", "n": n, "e": e}]}

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, bytes]:
        """The token endpoint's status and body for one request."""
        self.requests.append(form)
        if self.answer is not None:
            return self.answer
        client, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(client) != secret:
            return 401, b'{"error": "invalid_client", "error_description": "no %s"}' % secret.encode()
        if form.get("grant_type") != ["client_credentials"]:
            return 400, b'{"error": "unsupported_grant_type"}'
        token = self.token(client, " ".join(form.get("scope", [])))
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime}
        return 200, json.dumps(body).encode()


@contextmanager
def serve(server: OAuthServer, certificates: Certificates) -> Iterator[OAuthServer]:
    """Let `server` listen: `token_url` (https, the broker's certificate) and `keys_url` (http)."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.read.append((self.path, self.headers["Authorization"]))
            self._send(200, json.dumps(server.keys()).encode())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self._send(*server.respond(self.headers["Authorization"], form))

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            if 300 <= status < 400:
                self.send_header("Location", body.decode())
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing to standard error."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker_keystore)
    here = ("127.0.0.1", 0)
    with ThreadingHTTPServer(here, Handler) as tokens, ThreadingHTTPServer(here, Handler) as keys:
        tokens.socket = context.wrap_socket(tokens.socket, server_side=True)
        server.token_url = f"https://127.0.0.1:{tokens.server_port}/token"
        server.keys_url = f"http://127.0.0.1:{keys.server_port}/keys"
        threads = [threading.Thread(target=each.serve_forever, args=(0.05,)) for each in (tokens, keys)]
        for thread in threads:
            thread.start()
        try:
            yield server
        finally:
            for each in (tokens, keys):
                each.shutdown()
            for thread in threads:
                thread.join()


def fetch(config: str) -> tuple[str, float]:
    """A token provider, as a user would write it. `config` is JSON: the endpoint's `url`, its `ca`, and a file `calls`
    to which each call appends the process and the time.
    """
    settings = json.loads(config)
    pair = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
    form = urlencode({"grant_type": "client_credentials", "scope": "kafka"}).encode()
    request = Request(settings["url"], form, {"Authorization": f"Basic {pair}"})
    with urlopen(request, timeout=10, context=ssl.create_default_context(cafile=settings["ca"])) as response:
        answer = json.loads(response.read())
    with Path(settings["calls"]).open("a") as calls:
        calls.write(f"{os.getpid()} {time.time()}\n")
    return answer["access_token"], time.time() + answer["expires_in"]


@dataclass(frozen=True)
class Site:
    """A broker that accepts the tokens of `server` on SASL_PLAINTEXT."""

    kafka: EmbeddedKafka
    server: OAuthServer
    certificates: Certificates

    def properties(self, secret: str = SECRET) -> dict[str, str]:
        """The client's properties, with the token endpoint."""
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_of("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.login.callback.handler.class": f"{_KAFKA}.OAuthBearerLoginCallbackHandler",
            "kafka.sasl.oauthbearer.token.endpoint.url": self.server.token_url,
            "kafka.sasl.jaas.config": f'{_KAFKA}.OAuthBearerLoginModule required clientId="{CLIENT}" '
            f'clientSecret="{secret}" scope="kafka" ssl.truststore.location="{self.certificates.ca}";',
        }

    def provided(self, calls: Path) -> dict[str, str]:
        """The client's properties, with `fetch` as the token provider."""
        config = {"url": self.server.token_url, "ca": str(self.certificates.ca), "calls": str(calls)}
        return {
            "kafka.bootstrap.servers": self.kafka.bootstrap_of("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.provider": f"{__name__}:{fetch.__name__}",
            "kafka.sasl.oauthbearer.config": json.dumps(config),
        }

    def options(self, secret: str = SECRET, **changes: str) -> ClientOptions:
        """As a user gives them; `changes` are Kafka's properties with `_` for `.`."""
        quick = {"kafka.request.timeout.ms": "5000", "kafka.delivery.timeout.ms": "5000"}
        changed = {f"kafka.{name.replace('_', '.')}": value for name, value in changes.items()}
        return source_options({"subscribe": "any"} | self.properties(secret) | quick | changed).client


@contextmanager
def guarded_kafka(folder: Path, version: str, *, session_ms: int) -> Iterator[Site]:
    """A broker, whose sessions end after `session_ms`, and its OAuth server."""
    certificates = issue(folder)
    with serve(OAuthServer({CLIENT: SECRET}), certificates) as server:
        sasl = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{_KAFKA}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": f"{_KAFKA}.OAuthBearerValidatorCallbackHandler",
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
            "oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            "oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,  # from 4.4 on it must be said
            "oauthbearer.connections.max.reauth.ms": session_ms,
        }
        options = (*JVM_OPTIONS, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.keys_url}")
        with EmbeddedKafka(version, listeners={"SASL_PLAINTEXT": sasl}, jvm_options=options) as kafka:
            yield Site(kafka=kafka, server=server, certificates=certificates)


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
