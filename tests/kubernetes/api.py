"""An API server that Spark's own client talks to: HTTPS, service accounts' tokens, RBAC, and watches as WebSockets.

It is not fabric8's mock server, which is not Kubernetes either: it knows no rights, accepts fields that Kubernetes does
not have, and runs no pod.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import select
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.kubernetes.resources import KINDS, VERSION, Event, Refused, Resource, Resources, selected
from tests.kubernetes.rights import Action, allowed, rules_of

ADMINISTRATOR = "administrator"  # who may do everything
_PATH = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/v1)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?P<status>/status)?"
)
_LOOK_S = 0.2  # between two looks whether the client of a watch has gone
_APPLY = "application/apply-patch+yaml"  # "server-side apply": what is not there is created
_PING, _PONG, _CLOSE, _TEXT = 9, 10, 8, 1
_WEB_SOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked for, and whether he may."""

    by: str
    action: Action
    allowed: bool


class Api:
    """The server, as a context manager, on port 443 of `address`, where `kubernetes.default.svc` leads to."""

    def __init__(self, resources: Resources, address: str, keystore: Path, tokens: dict[str, str]) -> None:
        self.resources, self.tokens = resources, tokens
        self.requests: list[Request] = []
        self.refused: list[str] = []
        self.closing = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keystore)

        class Handler(_Handler):
            api = self

        self._server = _Server((address, 443), Handler)
        self._server.context = context
        self._thread = threading.Thread(target=self._server.serve_forever, name="api")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def permit(self, token: str, action: Action) -> None:
        """Raise Refused unless who has the token may do this."""
        by = self.tokens.get(token)
        if by is None:
            raise Refused(401, "Unauthorized", "Unauthorized")
        roles, bindings = (self.resources.listed(plural) for plural in ("roles", "rolebindings"))
        may = by == ADMINISTRATOR or allowed(action, rules_of(by, roles, bindings))
        self.requests.append(Request(by, action, may))
        if not may:
            raise Refused(
                403, "Forbidden", f"{by} cannot {action.verb} {action.resource} in API group {action.group!r}"
            )


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for the last requests
    context: ssl.SSLContext

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the request's own thread, so that a slow handshake holds up nobody else."""
        with (
            contextlib.suppress(ConnectionError, ssl.SSLError),  # of a client that was killed
            self.context.wrap_socket(request, server_side=True) as connection,
        ):
            super().finish_request(connection, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: Api

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(lambda: (201, self._resources.create(self._asked["plural"], self._body())))

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_PATCH(self) -> None:
        self._answer(self._patch)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def log_message(self, *_: Any) -> None:
        """Nothing: `Api.requests` has them."""

    @property
    def _resources(self) -> Resources:
        return self.api.resources

    def _answer(self, how: Callable[[], tuple[int, Resource] | None]) -> None:
        url = urlsplit(self.path)
        self._query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            found = _PATH.fullmatch(url.path)
            if url.path == "/version":
                answer: tuple[int, Resource] | None = (
                    200,
                    {"major": "1", "minor": VERSION[2:], "gitVersion": f"v{VERSION}.0"},
                )
            elif found is None or KINDS.get(found["plural"], ("", ""))[0] != (found["group"] or ""):
                raise Refused(404, "NotFound", f"the server could not find {url.path}")
            else:
                self._asked = found.groupdict()
                self._permit(self._action())
                if found["namespace"] not in (None, self._resources.namespace):
                    raise Refused(404, "NotFound", f"there is no namespace {found['namespace']}")
                answer = how()
        except Refused as error:
            self.api.refused.append(f"{self.command} {self.path}: {error}")
            answer = (error.code, _status("Failure", error.code, error.reason, str(error)))
        if answer is not None:
            self._send(*answer)

    def _permit(self, action: Action) -> None:
        self.api.permit(self.headers.get("Authorization", "").removeprefix("Bearer "), action)

    def _action(self) -> Action:
        one = self._asked["name"] is not None
        verbs = {
            "GET": "watch" if self._watches() else "get" if one else "list",
            "POST": "create",
            "PUT": "update",
            "PATCH": "patch",
            "DELETE": "delete" if one else "deletecollection",
        }
        resource = self._asked["plural"] + (self._asked["status"] or "")
        return Action(verbs[self.command], self._asked["group"] or "", resource)

    def _watches(self) -> bool:
        return self._query.get("watch") in ("true", "1")

    def _selectors(self) -> tuple[str, str]:
        return self._query.get("labelSelector", ""), self._query.get("fieldSelector", "")

    def _get(self) -> tuple[int, Resource] | None:
        plural, name = self._asked["plural"], self._asked["name"]
        if self._watches():
            self._watch()
            return None
        if name is not None:
            return 200, self._resources.get(plural, name)
        group, kind = KINDS[plural]
        with self._resources.changed:
            items, version = self._resources.listed(plural, *self._selectors()), self._resources.version
        of = f"{group}/v1" if group else "v1"
        return 200, {
            "apiVersion": of,
            "kind": f"{kind}List",
            "metadata": {"resourceVersion": str(version)},
            "items": items,
        }

    def _put(self) -> tuple[int, Resource]:
        new = self._body()

        def replace(old: Resource) -> None:
            kept = old["metadata"]
            old.clear()
            old.update(new, metadata=kept | new["metadata"])

        return 200, self._resources.change(self._asked["plural"], self._asked["name"], replace)

    def _patch(self) -> tuple[int, Resource]:
        patch, kind = self._body(), self.headers.get_content_type()
        plural, name = self._asked["plural"], self._asked["name"]
        if kind == _APPLY and not self._resources.has(plural, name):  # which asks for a right more
            self._permit(Action("create", self._asked["group"] or "", plural))
            return 201, self._resources.create(plural, patch)

        def apply(old: Resource) -> None:
            match kind:
                case "application/json-patch+json":
                    for step in patch:
                        patched(old, step)
                case "application/merge-patch+json" | "application/apply-patch+yaml":
                    merged(old, patch)
                case _:
                    raise Refused(415, "UnsupportedMediaType", f"patches of {kind} are not known here")

        return 200, self._resources.change(plural, name, apply)

    def _delete(self) -> tuple[int, Resource]:
        plural, name = self._asked["plural"], self._asked["name"]
        options = self._body() or {}
        grace = options.get("gracePeriodSeconds", self._query.get("gracePeriodSeconds"))
        grace_s = None if grace is None else int(grace)
        if name is not None:
            return 200, self._resources.delete(plural, name, grace_s)
        for each in self._resources.listed(plural, *self._selectors()):
            self._resources.delete(plural, each["metadata"]["name"], grace_s)
        return 200, _status("Success", 200, "", "")

    def _body(self) -> Any:
        length = int(self.headers.get("Content-Length", 0))
        return yaml.safe_load(self.rfile.read(length)) if length else None  # JSON is YAML, too

    def _send(self, code: int, answer: Resource) -> None:
        body = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self) -> None:
        """Tell what happens until the client goes, or the time is over that it asked for."""
        self.close_connection = True
        socket = self.headers.get("Sec-WebSocket-Key")
        if socket is None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
        else:
            accepted = hashlib.sha1((socket + _WEB_SOCKET).encode(), usedforsecurity=False).digest()
            self.send_response(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            self.send_header("Sec-WebSocket-Accept", base64.b64encode(accepted).decode())
        self.end_headers()
        for told in self._told():
            line = json.dumps(told).encode()
            self.wfile.write(line + b"\n" if socket is None else frame(_TEXT, line))
        if socket is not None:
            self.wfile.write(frame(_CLOSE, struct.pack("!H", 1000)))

    def _told(self) -> Iterator[Resource]:
        plural, (labels, fields) = self._asked["plural"], self._selectors()
        name = self._asked["name"]
        asked, seen = self._query.get("resourceVersion", "0"), set[str]()
        with self._resources.changed:
            after = int(asked) if int(asked or 0) else self._resources.version
            for event in self._resources.events(plural, 0, 0)[0]:  # what matches when the watch begins
                if event.version <= after:
                    list(told(event, labels, fields, seen))
            present = [] if int(asked or 0) else self._resources.listed(plural, labels, fields)
        yield from ({"type": "ADDED", "object": each} for each in present)
        ends = time.monotonic() + float(self._query.get("timeoutSeconds", "inf"))
        while time.monotonic() < ends and not self.api.closing.is_set() and not self._client_has_gone():
            events, after = self._resources.events(plural, after, _LOOK_S)
            for event in events:
                if name is None or event.key.name == name:
                    yield from told(event, labels, fields, seen)

    def _client_has_gone(self) -> bool:
        """Whether it has closed the connection; answers its pings."""
        while self.connection.pending() or select.select([self.connection], [], [], 0)[0]:
            head = self.rfile.read(2)
            if len(head) < 2 or head[0] & 15 == _CLOSE:
                return True
            mask, length = self.rfile.read(4), head[1] & 127
            content = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(length)))
            if head[0] & 15 == _PING:
                self.wfile.write(frame(_PONG, content))
        return False


def told(event: Event, labels: str, fields: str, seen: set[str]) -> Iterator[Resource]:
    """What a watch with these selectors is told of an event. `seen` has the uids that they matched so far: what they
    match no longer is DELETED for this watch, and what they match now is ADDED.
    """
    uid = event.resource["metadata"]["uid"]
    if event.type != "DELETED" and selected(event.resource, labels, fields):
        yield {"type": "MODIFIED" if uid in seen else "ADDED", "object": event.resource}
        seen.add(uid)
    elif uid in seen:
        yield {"type": "DELETED", "object": event.resource}
        seen.discard(uid)


def frame(kind: int, content: bytes) -> bytes:
    """A frame of a WebSocket, as a server sends it."""
    length = len(content)
    if length < 126:
        size = struct.pack("!B", length)
    elif length < 1 << 16:
        size = struct.pack("!BH", 126, length)
    else:
        size = struct.pack("!BQ", 127, length)
    return bytes([0x80 | kind]) + size + content


def patched(resource: Resource, step: Resource) -> None:
    """One operation of a JSON patch (RFC 6902), in place."""
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    at: Any = resource
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    match step["op"], at:
        case ("add", list()):
            at.insert(len(at) if last == "-" else int(last), step["value"])
        case ("add" | "replace", dict()):
            at[last] = step["value"]
        case ("replace", list()):
            at[int(last)] = step["value"]
        case ("remove", list()):
            del at[int(last)]
        case ("remove", dict()):
            del at[last]
        case ("test", dict()) if at.get(last) != step["value"]:
            raise Refused(409, "Conflict", f"{step['path']} is not {step['value']!r}")
        case ("test", dict()):
            return
        case other, _:
            raise Refused(400, "BadRequest", f"the operation {other!r} of a patch is not known here")


def merged(resource: Resource, patch: Resource) -> None:
    """A merge patch (RFC 7386), in place."""
    for name, value in patch.items():
        if value is None:
            resource.pop(name, None)
        elif isinstance(value, dict) and isinstance(resource.get(name), dict):
            merged(resource[name], value)
        else:
            resource[name] = value


def _status(status: str, code: int, reason: str, message: str) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "metadata": {},
        "status": status,
        "code": code,
        "reason": reason,
        "message": message,
    }
