"""A registry that answers as Confluent documents its API, where the one in memory does not: contexts with ids of their
own, .proto text unless `format=serialized` is asked for, deleted versions, rules.

Source: Confluent Schema Registry, API reference and "Schema contexts"; its class `QualifiedSubject`.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

Json = dict[str, Any]


@dataclass
class Version:
    """A version of a subject. `serialized` is a Protobuf file in base64, whose text is `schema`."""

    context: str
    subject: str
    number: int
    schema_id: int
    kind: str
    schema: str
    serialized: str | None
    references: list[Json]
    rules: Json | None
    deleted: bool = False
    guid: str = field(default_factory=lambda: str(uuid.uuid4()))

    def answer(self, form: str | None) -> Json:
        text = self.serialized if form == "serialized" and self.serialized else self.schema
        told: Json = {"schema": text, "id": self.schema_id, "guid": self.guid, "references": self.references}
        if self.kind != "AVRO":
            told["schemaType"] = self.kind
        return told | ({"ruleSet": self.rules} if self.rules else {})

    def registered(self, form: str | None) -> Json:
        return self.answer(form) | {"subject": self.qualified, "version": self.number}

    @property
    def qualified(self) -> str:
        return self.subject if self.context == "." else f":{self.context}:{self.subject}"


class NotThere(Exception):
    """The answer's error code."""


def parts(subject: str) -> tuple[str, str]:
    """The context and the name of a subject."""
    qualified = re.fullmatch(r":(\.[^:]*):(.*)", subject)
    return qualified.groups() if qualified else (".", subject)  # type: ignore[return-value]


class ConfluentApi:
    """`requests` has the method and the path with its query of each request. `strict` is as Redpanda and Google are: an
    id belongs to the subject that is asked for.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.strict = strict
        self.requests: list[str] = []
        self.versions: list[Version] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def put(
        self,
        subject: str,
        schema: str,
        kind: str = "AVRO",
        *,
        serialized: str | None = None,
        references: Mapping[str, tuple[str, int]] | None = None,
        rules: Json | None = None,
    ) -> Version:
        """Register the subject's next version. `references` maps a name to subject and version."""
        context, name = parts(subject)
        number = 1 + len(self._of(context, name))
        made = [{"name": each, "subject": of, "version": at} for each, (of, at) in (references or {}).items()]
        schema_id = 1 + max((each.schema_id for each in self.versions if each.context == context), default=0)
        version = Version(context, name, number, schema_id, kind, schema, serialized, made, rules)
        self.versions.append(version)
        return version

    def _of(self, context: str, name: str) -> list[Version]:
        return [each for each in self.versions if (each.context, each.subject) == (context, name)]

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Json:
        form = query.get("format")
        if by_id := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._by_id(int(by_id[1]), query.get("subject")).answer(form)
        if by_guid := re.fullmatch(r"/schemas/guids/(.+)", path):
            for each in self.versions:
                if each.guid == by_guid[1]:
                    return each.answer(form)
            raise NotThere(40403)
        if one := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|-?\d+)", path):
            among = self._of(*parts(unquote(one[1])))
            there = [each for each in among if not each.deleted or query.get("deleted") == "true"]
            if not there:
                raise NotThere(40401 if not among else 40402)
            wanted = (
                there[-1:] if one[2] in ("latest", "-1") else [each for each in there if each.number == int(one[2])]
            )
            if not wanted:
                raise NotThere(40402)
            return wanted[0].registered(form)
        if looked_up := re.fullmatch(r"/subjects/([^/]+)", path):
            for each in self._of(*parts(unquote(looked_up[1]))):
                if (each.schema, each.references) == (body["schema"], body.get("references") or []):
                    return each.registered(form)
            raise NotThere(40403)
        if (new := re.fullmatch(r"/subjects/([^/]+)/versions", path)) and method == "POST":
            subject = unquote(new[1])
            before = self._of(*parts(subject))
            rules = body.get("ruleSet") or (before[-1].rules if before else None)  # they are inherited
            references = {each["name"]: (each["subject"], each["version"]) for each in body.get("references") or []}
            kind = body.get("schemaType") or "AVRO"
            return {"id": self.put(subject, body["schema"], kind, references=references, rules=rules).schema_id}
        raise NotThere(404)

    def _by_id(self, schema_id: int, subject: str | None) -> Version:
        context, name = parts(subject or "")
        contexts = [context]
        if context == "." and name:  # a name without a context is looked for in all of them, first in the default one
            contexts += sorted({each.context for each in self.versions} - {"."})
        for each in contexts:
            for version in self.versions:
                of_subject = not (self.strict and name) or version.subject == name
                if (version.context, version.schema_id) == (each, schema_id) and of_subject:
                    return version
        raise NotThere(40403)


def _handler(server: ConfluentApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._reply("GET")

        def do_POST(self) -> None:
            self._reply("POST")

        def _reply(self, method: str) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            server.requests.append(f"{method} {unquote(self.path)}")
            path = urlsplit(self.path)
            try:
                query = {name: values[-1] for name, values in parse_qs(path.query).items()}
                status, told = 200, server.answer(method, path.path, query, body)
            except NotThere as error:
                status, told = 404, {"error_code": error.args[0], "message": "not found"}
            answer = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
            """Nothing: a test's output is its own."""

    return Handler
