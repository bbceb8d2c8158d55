"""A stand-in for S3 that serves the files of a folder, to read only: what pyarrow's client asks for, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit


@contextmanager
def s3_of(folder: Path) -> Iterator[str]:
    """Serve the keys of the bucket `bucket` from `folder`; yields `host:port`."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            path = urlsplit(self.path)
            file = folder / unquote(path.path).removeprefix("/bucket").lstrip("/")
            if path.query:  # a list of keys: there are no staged files to find
                self.send(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>", body=body)
            elif not file.is_file():
                self.send(404, b"<Error><Code>NoSuchKey</Code></Error>", body=body)
            elif wanted := self.headers.get("Range"):
                first, last = wanted.removeprefix("bytes=").split("-")
                self.send(206, file.read_bytes()[int(first) : int(last) + 1], body=body)
            else:
                self.send(200, file.read_bytes(), body=body)

        def send(self, status: int, content: bytes, *, body: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "application/xml" if content.startswith(b"<") else "binary/octet-stream")
            self.end_headers()
            if body:
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
