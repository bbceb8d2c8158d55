"""A schema registry on the loopback interface, in memory: what Confluent's client uses of the REST API.

It is not a real registry, but starts in no time. Confluent's own client and serializers pass their calls through it in
this project's tests, so requests and answers have the form that they expect, and a slow test compares its answers with
those of a real one, Apicurio. It does not check compatibility, and it returns a schema as it was registered. (A real
registry turns a Protobuf schema into text unless `format=serialized` is asked for; Confluent's Python client registers,
and asks for, the serialized form.)

Source: Confluent Schema Registry, API reference.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, urlsplit

_UNKNOWN_SUBJECT, _UNKNOWN_VERSION, _UNKNOWN_SCHEMA = 40401, 40402, 40403


class _Version(NamedTuple):
    subject: str
    version: int
    schema_id: int


class ErrorAnswer(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, {"error_code": code, "message": message}


class RegistryHttp:
    """A registry's HTTP: `url` is where it listens, `requests` has the method and path of each request. A subclass has
    the answers.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def check(self, authorization: str | None) -> None:
        """Raise ErrorAnswer if a request with this header gets no answer."""

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> object:
        """What the API answers; `path` may have a query. Raises ErrorAnswer."""
        raise NotImplementedError


class RegistryServer(RegistryHttp):
    """`user_info` ("name:password") is asked for if given. `fail` is the HTTP status that all requests get until it is
    None again.
    """

    def __init__(self, user_info: str | None = None) -> None:
        super().__init__()
        self.user_info = user_info
        self.fail: int | None = None
        self._schemas: list[dict[str, Any]] = []  # its number is the id - 1
        self._versions: list[_Version] = []
        self._lock = threading.Lock()

    def check(self, authorization: str | None) -> None:
        if self.fail is not None:
            raise ErrorAnswer(self.fail, 50001, "Error in the backend data store")
        asked = self.user_info
        if asked and authorization != f"Basic {base64.b64encode(asked.encode()).decode()}":
            raise ErrorAnswer(401, 401, "Unauthorized")

    def register(self, subject: str, schema: str, schema_type: str = "AVRO") -> int:
        """Register `schema` as the subject's latest version, without HTTP. Returns its id."""
        return int(self._register(subject, {"schema": schema, "schemaType": schema_type})["id"])

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> object:
        """What the API answers. Raises ErrorAnswer."""
        path = urlsplit(path).path
        with self._lock:
            self.requests.append(f"{method} {path}")
        for pattern, how in _ROUTES:
            if method == how[0] and (match := re.fullmatch(pattern, path)):
                return getattr(self, how[1])(*map(unquote, match.groups()), *([body] if method == "POST" else []))
        raise ErrorAnswer(404, 404, "HTTP 404 Not Found")

    def _register(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        schema = _stored(body)
        with self._lock:
            if schema not in self._schemas:
                self._schemas.append(schema)
            schema_id = self._schemas.index(schema) + 1
            versions = [version for version in self._versions if version.subject == subject]
            if all(version.schema_id != schema_id for version in versions):
                self._versions.append(_Version(subject, len(versions) + 1, schema_id))
        return self._lookup(subject, body)

    def _lookup(self, subject: str, body: Mapping[str, Any]) -> dict[str, Any]:
        schema = _stored(body)
        for version in self._of(subject):
            if self._schemas[version.schema_id - 1] == schema:
                return self._version_fields(version)
        raise ErrorAnswer(404, _UNKNOWN_SCHEMA, "Schema not found")

    def _version(self, subject: str, version: str) -> dict[str, Any]:
        versions = self._of(subject)
        for registered in versions[-1:] if version == "latest" else versions:
            if version in {"latest", str(registered.version)}:
                return self._version_fields(registered)
        raise ErrorAnswer(404, _UNKNOWN_VERSION, f"Version {version} not found.")

    def _all_versions(self, subject: str) -> list[int]:
        return [version.version for version in self._of(subject)]

    def _subjects(self) -> list[str]:
        return list(dict.fromkeys(version.subject for version in self._versions))

    def _types(self) -> list[str]:
        return ["JSON", "PROTOBUF", "AVRO"]

    def _by_id(self, schema_id: str) -> dict[str, Any]:
        if not 0 < int(schema_id) <= len(self._schemas):
            raise ErrorAnswer(404, _UNKNOWN_SCHEMA, f"Schema {schema_id} not found")
        return self._schemas[int(schema_id) - 1] | {"id": int(schema_id)}

    def _by_guid(self, guid: str) -> dict[str, Any]:
        for number, schema in enumerate(self._schemas, start=1):
            if schema["guid"] == guid:
                return schema | {"id": number}
        raise ErrorAnswer(404, _UNKNOWN_SCHEMA, f"Schema {guid} not found")

    def _of(self, subject: str) -> list[_Version]:
        versions = [version for version in self._versions if version.subject == subject]
        if not versions:
            raise ErrorAnswer(404, _UNKNOWN_SUBJECT, f"Subject '{subject}' not found.")
        return versions

    def _version_fields(self, version: _Version) -> dict[str, Any]:
        return self._schemas[version.schema_id - 1] | {
            "subject": version.subject, "version": version.version, "id": version.schema_id,
        }  # fmt: skip


_ROUTES = (
    (r"/subjects", ("GET", "_subjects")),
    (r"/schemas/types", ("GET", "_types")),
    (r"/subjects/([^/]+)/versions", ("POST", "_register")),
    (r"/subjects/([^/]+)/versions", ("GET", "_all_versions")),
    (r"/subjects/([^/]+)", ("POST", "_lookup")),
    (r"/subjects/([^/]+)/versions/(latest|\d+)", ("GET", "_version")),
    (r"/schemas/ids/(\d+)", ("GET", "_by_id")),
    (r"/schemas/guids/([0-9a-f-]{36})", ("GET", "_by_guid")),
)


def _stored(body: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as it is kept: equal schemas have one id under all subjects."""
    kept = {
        "schema": body["schema"],
        "schemaType": body.get("schemaType") or "AVRO",
        "references": body.get("references") or [],
    }
    digest = hashlib.md5(json.dumps(kept, sort_keys=True).encode(), usedforsecurity=False).digest()
    return kept | {"guid": str(uuid.UUID(bytes=digest))}


def _handler(server: RegistryHttp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._reply("GET")

        def do_POST(self) -> None:
            self._reply("POST")

        def _reply(self, method: str) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                server.check(self.headers.get("Authorization"))
                status, content = 200, server.answer(method, self.path, json.loads(body or b"{}"))
            except ErrorAnswer as refused:
                status, content = refused.status, refused.body
            answer = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Nothing: a test's output is its own."""

    return Handler


@contextmanager
def schema_registry() -> Iterator[str]:
    """The URL of a registry that lives as long as the context."""
    with RegistryServer() as server:
        yield server.url
