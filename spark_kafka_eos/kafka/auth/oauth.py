"""SASL OAUTHBEARER: requests a token (client credentials grant, RFC 6749, 4.4; KIP-768), or calls a function for it,
and sends it (RFC 7628).

All connections of the process use a token until four fifths of its lifetime have passed, or a broker rejects it.
Redirects are not followed, because the request contains the client secret.
"""

from __future__ import annotations

import base64
import io
import json
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.security import Security
from spark_kafka_eos.kafka.auth.token_provider import TOKEN, provide
from spark_kafka_eos.kafka.auth.tokens import TokenEndpoint, TokenProvider
from spark_kafka_eos.kafka.auth.trust import trusting
from spark_kafka_eos.kafka.errors import AuthenticationFailed, BrokerUnreachable

if TYPE_CHECKING:
    import socket

_KEPT = 0.8  # of a token's lifetime, as the Java client's sasl.login.refresh.window.factor
_LARGEST_ANSWER = 1 << 20
_ERROR = re.compile("[a-z_]{1,40}")  # RFC 6749, section 5.2; anything longer might quote the request


def exchange_token(
    security: Security, timeout: float, exchange: Callable[[bytes], bytes], tokens: Tokens | None = None
) -> bool:
    """Authenticate with a token; False if the broker rejects it without a reason. `exchange` as in `sasl_exchange`.

    `tokens` defaults to those of this process.
    """
    tokens = shared_tokens if tokens is None else tokens
    assert security.token_source is not None
    pairs = [("auth", f"Bearer {tokens.get(security, timeout).reveal()}"), *security.token_source.extensions]
    first = "n,,\x01" + "".join(f"{name}={value}\x01" for name, value in pairs) + "\x01"
    try:
        refused = exchange(first.encode())
        if refused:
            with suppress(BrokerUnreachable):  # it is refused, even if the broker hangs up now
                exchange(b"\x01")  # RFC 7628, section 3.2.3: its reason is acknowledged, then it ends the exchange
    except AuthenticationFailed:
        tokens.forget(security)
        raise
    if refused:
        tokens.forget(security)
    return not refused


@dataclass(frozen=True, slots=True)
class _Token:
    text: Secret
    renewed_at: float


class Tokens:
    """The tokens of this process, one per client; thread-safe."""

    def __init__(
        self,
        request: Callable[[Security, float], tuple[str, float]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request, self._clock = request or request_token, clock
        self._tokens: dict[Security, _Token] = {}
        self._lock = threading.Lock()

    def get(self, security: Security, timeout: float) -> Secret:
        """A token with at least a fifth of its lifetime left. Raises what `request_token` raises."""
        with self._lock:
            token = self._tokens.get(security)
            if token is None or self._clock() >= token.renewed_at:
                asked = self._clock()
                text, lifetime = self._request(security, timeout)
                token = self._tokens[security] = _Token(Secret(text), asked + lifetime * _KEPT)
            return token.text

    def forget(self, security: Security) -> None:
        """Request a new token next time."""
        with self._lock:
            self._tokens.pop(security, None)


def request_token(security: Security, timeout: float) -> tuple[str, float]:
    """A new token and its lifetime in seconds (0 if the server does not return it). A provider is not interrupted after
    `timeout`.

    Raises AuthenticationFailed if the server rejects the client or cannot be trusted, BrokerUnreachable if it does not
    answer within `timeout` seconds or returns a server error.
    """
    endpoint = security.token_source
    assert endpoint is not None
    if isinstance(endpoint, TokenProvider):
        text, expiry = provide(endpoint)
        return text, expiry - time.time()
    where = f"the token endpoint {_without_query(endpoint.url)}"
    try:
        with _opener(endpoint, time.monotonic() + timeout).open(
            _request(security, endpoint), timeout=timeout
        ) as response:
            answer = response.read(_LARGEST_ANSWER)
            if response.length and len(answer) < _LARGEST_ANSWER:
                raise IncompleteRead(answer, response.length)  # which Python only does without a limit
    except urllib.error.HTTPError as error:
        with error:
            status = f"HTTP {error.code} {_reason(error)}".rstrip()
        if error.code >= 500 or error.code in (408, 429):
            raise BrokerUnreachable(f"{where} failed: {status}") from None
        raise AuthenticationFailed(
            f"{where} rejected client {security.username!r}: {status}",
            action="Check client id, client secret and scope.",
        ) from None
    except (OSError, HTTPException) as error:
        cause = getattr(error, "reason", error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise AuthenticationFailed(
                f"the certificate of {where} is not trusted: {cause.verify_message.rstrip('.')}",
                action="Set kafka.https.ca.location to the CA certificate that signed it.",
            ) from None
        raise BrokerUnreachable(f"cannot connect to {where}: {cause or type(cause).__name__}") from None
    return _read(answer, where)


def librdkafka_callback(security: Security) -> dict[str, Any]:
    """What `Security.librdkafka()` lacks for a token provider: confluent-kafka's `oauth_cb`."""
    source = security.token_source
    return {"oauth_cb": lambda _: provide(source)} if isinstance(source, TokenProvider) else {}


def _request(security: Security, endpoint: TokenEndpoint) -> urllib.request.Request:
    secret = security.password.reveal() if security.password else ""
    pair = [security.username or "", secret]
    if endpoint.header_urlencode:
        pair = [quote_plus(part) for part in pair]
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    return urllib.request.Request(  # noqa: S310 - the options allow only http and https
        endpoint.url,
        data=urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": "Basic " + base64.b64encode(":".join(pair).encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _opener(endpoint: TokenEndpoint, deadline: float) -> urllib.request.OpenerDirector:
    """Sends requests that are answered by `deadline` (seconds of the monotonic clock), or fail."""
    context = trusting("kafka.https.ca.location", endpoint.ca_location, endpoint.ca_pem)
    return urllib.request.build_opener(_NoRedirect, _Http(deadline), _Https(deadline, context))


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._connection = partial(_connection, HTTPConnection, deadline)

    def http_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connection, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._connection = partial(_connection, HTTPSConnection, deadline, context=context)

    def https_open(self, request: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._connection, request)


def _connection(kind: type[HTTPConnection], deadline: float, host: str, **options: Any) -> HTTPConnection:
    made = kind(host, **options)
    made.response_class = partial(_Response, deadline)  # type: ignore[assignment]
    return made


class _Response(HTTPResponse):
    """A response that must be complete by `deadline`. A socket's timeout alone applies to each byte of it."""

    def __init__(self, deadline: float, sock: socket.socket, **options: Any) -> None:
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, deadline))


class _Timed(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: float) -> None:
        self._raw, self._sock, self._deadline = raw, sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(remaining)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _without_query(url: str) -> str:
    """The URL without its query, which may contain keys."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def _reason(error: urllib.error.HTTPError) -> str:
    """The error code of RFC 6749, if the server returns one."""
    try:
        code = json.loads(error.read(_LARGEST_ANSWER))["error"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and _ERROR.fullmatch(code) else ""


def _read(answer: bytes, where: str) -> tuple[str, float]:
    try:
        fields = json.loads(answer)
        token, lifetime = fields["access_token"], float(fields.get("expires_in") or 0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise AuthenticationFailed(f"the response of {where} contains no access token") from None
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise AuthenticationFailed(f"{where} returned an invalid access token (RFC 6750)")
    return token, max(lifetime, 0.0)


shared_tokens = Tokens()
