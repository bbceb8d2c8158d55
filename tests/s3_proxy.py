"""An HTTP proxy in front of an S3 server, which makes faults: slow answers, 503, cut connections, outdated lists, and
an order of requests.

Requests are passed on unchanged, with their `Host`: it is part of what is signed.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_HOP = {"connection", "keep-alive", "transfer-encoding"}
_TURN_S = 100


@dataclass(frozen=True, kw_only=True)
class Turn:
    """An order of requests: each says that it is `there`, and is passed on once `awaits` is set; then it is `over`."""

    there: threading.Event
    awaits: threading.Event
    over: threading.Event


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What happens to requests from now on, if this pattern, `to`, fits their `METHOD path?query`.

    `latency`: seconds that each takes longer. `unavailable_every`: each n-th is answered with 503. `cut_every`: each
    n-th is passed on, and its connection cut in the middle of the answer. `unlisted`: a pattern of keys that lists
    leave out, as if they came from before these were written. `turn`: when each is passed on.
    """

    to: str = ""
    latency: float = 0
    unavailable_every: int = 0
    cut_every: int = 0
    unlisted: str | None = None
    turn: Turn | None = None


class S3Proxy:
    """A proxy that listens at `endpoint` (`host:port`). `faults` may be changed at any time; `made` counts those that
    it made, by kind.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.faults = endpoint, Faults()
        self.requests: list[str] = []
        self.made: Counter[str] = Counter()
        self._chosen = 0
        self._lock = threading.Lock()

    def faults_of(self, request: str) -> Faults:
        """Note a request; what happens to it."""
        with self._lock:
            self.requests.append(request)
            return self.faults if re.search(self.faults.to, request) else Faults()

    def is_nth(self, every: int, kind: str) -> bool:
        with self._lock:
            self._chosen += bool(every)
            chosen = bool(every) and self._chosen % every == 0
            self.made[kind] += chosen
            return chosen

    def outdated(self, unlisted: str, body: bytes) -> bytes:
        """A list without these keys."""

        def kept(entry: re.Match[bytes]) -> bytes:
            key = re.search(b"<Key>(.*?)</Key>", entry[0])
            if key is None or not re.search(unlisted, unquote(key[1].decode())):
                return entry[0]
            self.made["left out"] += 1
            return b""

        return re.sub(b"<Contents>.*?</Contents>", kept, body, flags=re.DOTALL)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True  # a client may keep its connection
    request_queue_size = 64

    def __init__(self, server: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.to = server
        self.proxy = S3Proxy(f"127.0.0.1:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 120

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection(self.server.to, timeout=60)

    def finish(self) -> None:
        super().finish()
        self.upstream.close()

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:  # the client has closed its connection, as a killed process does
            self.close_connection = True

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Every method is handled in the same way."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        proxy = self.server.proxy
        body, faults = self._body(), proxy.faults_of(f"{self.command} {self.path}")
        time.sleep(faults.latency)
        if proxy.is_nth(faults.unavailable_every, "503"):
            self._answer(503, [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if faults.turn is not None:
            faults.turn.there.set()
            assert faults.turn.awaits.wait(_TURN_S), "the other request has not come"
        status, headers, content = self._pass_on(body)
        if faults.turn is not None:
            faults.turn.over.set()
        if faults.unlisted is not None and self.command == "GET" and "prefix=" in self.path:
            content = proxy.outdated(faults.unlisted, content)
            headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
        self._answer(status, headers, content, cut=proxy.is_nth(faults.cut_every, "cut"))

    def _pass_on(self, body: bytes | None) -> tuple[int, list[tuple[str, str]], bytes]:
        self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in _HOP | {"expect"}:
                self.upstream.putheader(name, value)
        if body is not None and "Content-Length" not in self.headers:
            self.upstream.putheader("Content-Length", str(len(body)))
        self.upstream.endheaders(body)
        answer = self.upstream.getresponse()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        return answer.status, headers, answer.read()

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers
                pass
            return b"".join(parts)
        length = self.headers.get("Content-Length")
        return None if length is None else self.rfile.read(int(length))

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False) -> None:
        self.close_connection |= cut
        if cut and not body:
            return  # before a byte of the answer
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)

    def log_message(self, *arguments: Any) -> None:
        """Nothing: `S3Proxy.requests` has them."""


@contextmanager
def s3_proxy(server: str) -> Iterator[S3Proxy]:
    """Run a proxy in front of the S3 server at `host:port`."""
    listener = _Listener(server)
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield listener.proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
