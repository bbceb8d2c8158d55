"""An OAuth server for tests: a token endpoint behind TLS and the keys for the broker, both on loopback."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.certificates import Certificates

ISSUER = "https://issuer.test"


class OAuthServer:
    """Issues signed tokens to `clients` (id -> secret). `answer`, if set, is sent instead: (status, body)."""

    def __init__(self, clients: dict[str, str]) -> None:
        self.clients = clients
        self.lifetime = 3600.0
        self.audience = "kafka"
        self.answer: tuple[int, bytes] | None = None
        self.requests: list[dict[str, list[str]]] = []
        self.token_url = self.keys_url = ""
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)

    def token(self, client: str, scope: str) -> str:
        """A JWT as RFC 7519 and RFC 9068 have it, signed with RS256."""
        now = time.time()
        claims = {"iss": ISSUER, "aud": self.audience, "sub": client, "scope": scope.split() or ["all"]}
        times = {"iat": int(now), "exp": int(now + self.lifetime)}
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


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
