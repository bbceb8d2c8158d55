"""An HTTP proxy in front of an S3 server, which makes faults: slow answers, 503, cut connections, outdated lists, and two
requests at the same moment.

Requests are passed on unchanged, with their `Host`: it is part of what is signed.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_HOP = {"connection", "keep-alive", "transfer-encoding"}
_MEET_S = 60


@dataclass
class Faults:
    """What happens to requests from now on. May be changed at any time.

    `latency`: seconds that each request takes longer. `unavailable_every`: each n-th request is answered with 503.
    `cut_every`: each n-th is passed on, and its connection cut in the middle of the answer. `only`: a pattern of the
    `METHOD path?query` that these two apply to. `outdated_lists`: lists leave out what is written from now on.
    `meeting`: two requests that this pattern fits are passed on together, once the second one has come.
    """

    latency: float = 0
    unavailable_every: int = 0
    cut_every: int = 0
    only: str = ""
    outdated_lists: bool = False
    meeting: str | None = None


@dataclass
class S3Proxy:
    """A proxy that listens at `endpoint` (`host:port`). `made` counts the faults that it made, by kind."""

    endpoint: str = ""
    faults: Faults = field(default_factory=Faults)
    requests: list[str] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)
    _matched: int = 0
    _unlisted: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _meeting: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def seen(self, request: str, *, writes: str | None) -> Faults:
        """Note a request; returns the faults as they are now."""
        with self._lock:
            self.requests.append(request)
            faults = self.faults
            if writes is not None and faults.outdated_lists:
                self._unlisted.add(writes)
            return faults

    def is_nth(self, request: str, faults: Faults, every: int) -> bool:
        if not every or not re.search(faults.only, request):
            return False
        with self._lock:
            self._matched += 1
            return self._matched % every == 0

    def count(self, kind: str) -> None:
        with self._lock:
            self.made[kind] = self.made.get(kind, 0) + 1

    def meet(self, request: str, faults: Faults) -> None:
        """Wait for the other one of two requests."""
        if faults.meeting is None or not re.search(faults.meeting, request):
            return
        self._meeting.wait(_MEET_S)
        self.count("met")
        self.faults.meeting = None

    def outdated(self, body: bytes) -> bytes:
        """A list without what was written since lists are outdated."""

        def kept(entry: re.Match[bytes]) -> bytes:
            key = re.search(b"<Key>(.*?)</Key>", entry[0])
            if key is None or unquote(key[1].decode()) not in self._unlisted:
                return entry[0]
            self.count("left out")
            return b""

        return re.sub(b"<Contents>.*?</Contents>", kept, body, flags=re.DOTALL)


@contextmanager
def s3_proxy(server: str) -> Iterator[S3Proxy]:
    """Run a proxy in front of the S3 server at `host:port`."""
    proxy = S3Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 120

        def setup(self) -> None:
            super().setup()
            self.upstream = http.client.HTTPConnection(server, timeout=60)

        def finish(self) -> None:
            super().finish()
            self.upstream.close()

        def handle(self) -> None:
            try:
                super().handle()
            except ConnectionError:  # the client has closed its connection, as a killed process does
                self.close_connection = True

        def pass_on(self) -> None:
            request, url = f"{self.command} {self.path}", urlsplit(self.path)
            key = unquote(url.path).removeprefix("/bucket/")
            body = self._body()
            faults = proxy.seen(request, writes=key if self.command in ("PUT", "POST") else None)
            time.sleep(faults.latency)
            if proxy.is_nth(request, faults, faults.unavailable_every):
                proxy.count("503")
                self._answer(503, [("Content-Type", "application/xml")], _SLOW_DOWN)
                return
            proxy.meet(request, faults)
            self.upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _HOP | {"expect"}:
                    self.upstream.putheader(name, value)
            if body is not None and "Content-Length" not in self.headers:
                self.upstream.putheader("Content-Length", str(len(body)))
            self.upstream.endheaders(body)
            answer = self.upstream.getresponse()
            content = answer.read()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
            if faults.outdated_lists and self.command == "GET" and "prefix=" in url.query:
                content = proxy.outdated(content)
                headers = [(name, value) for name, value in headers if name.lower() != "content-length"]
            cut = proxy.is_nth(request, faults, faults.cut_every)
            if cut:
                proxy.count("cut")
            self._answer(answer.status, headers, content, cut=cut)

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
            if cut and not body:
                self.close_connection = True  # before a byte of the answer
                return
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection |= cut

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = pass_on

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # a client may keep its connection
        request_queue_size = 64

    listener = Server(("127.0.0.1", 0), Handler)
    proxy.endpoint = f"127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield proxy
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
