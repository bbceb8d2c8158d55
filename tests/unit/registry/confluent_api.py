"""A registry that answers as Confluent documents its API, where the one in memory does not: contexts with ids of their
own, .proto text unless `format=serialized` is asked for, deleted versions, rules.

Source: Confluent Schema Registry, API reference and "Schema contexts"; its class `QualifiedSubject`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from spark_kafka_eos.testing.registry import ErrorAnswer, RegistryHttp

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


def _not_there(code: int) -> ErrorAnswer:
    return ErrorAnswer(404, code, "not found")


def parts(subject: str) -> tuple[str, str]:
    """The context and the name of a subject."""
    qualified = re.fullmatch(r":(\.[^:]*):(.*)", subject)
    return qualified.groups() if qualified else (".", subject)  # type: ignore[return-value]


class ConfluentApi(RegistryHttp):
    """`requests` has the query of each request, too. `strict` is as Redpanda and Google are: an id belongs to the
    subject that is asked for.
    """

    def __init__(self, *, strict: bool = False) -> None:
        super().__init__()
        self.strict = strict
        self.versions: list[Version] = []

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

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        self.requests.append(f"{method} {unquote(path)}")
        target = urlsplit(path)
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        path, form = target.path, query.get("format")
        if by_id := re.fullmatch(r"/schemas/ids/(\d+)", path):
            return self._by_id(int(by_id[1]), query.get("subject")).answer(form)
        if by_guid := re.fullmatch(r"/schemas/guids/(.+)", path):
            for each in self.versions:
                if each.guid == by_guid[1]:
                    return each.answer(form)
            raise _not_there(40403)
        if one := re.fullmatch(r"/subjects/([^/]+)/versions/(latest|-?\d+)", path):
            among = self._of(*parts(unquote(one[1])))
            there = [each for each in among if not each.deleted or query.get("deleted") == "true"]
            if not there:
                raise _not_there(40401 if not among else 40402)
            wanted = (
                there[-1:] if one[2] in ("latest", "-1") else [each for each in there if each.number == int(one[2])]
            )
            if not wanted:
                raise _not_there(40402)
            return wanted[0].registered(form)
        if looked_up := re.fullmatch(r"/subjects/([^/]+)", path):
            for each in self._of(*parts(unquote(looked_up[1]))):
                if (each.schema, each.references) == (body["schema"], body.get("references") or []):
                    return each.registered(form)
            raise _not_there(40403)
        if every := re.fullmatch(r"/subjects/([^/]+)/versions", path):
            return self._versions(unquote(every[1]), body if method == "POST" else None)
        raise _not_there(404)

    def _versions(self, subject: str, body: Mapping[str, Any] | None) -> Any:
        """Their numbers, or a new one."""
        before = self._of(*parts(subject))
        if body is None:
            return [each.number for each in before if not each.deleted]
        rules = body.get("ruleSet") or (before[-1].rules if before else None)  # they are inherited
        references = {each["name"]: (each["subject"], each["version"]) for each in body.get("references") or []}
        kind = body.get("schemaType") or "AVRO"
        return {"id": self.put(subject, body["schema"], kind, references=references, rules=rules).schema_id}

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
        raise _not_there(40403)


class WithoutDescriptors(ConfluentApi):
    """As Apicurio 3: of `format=serialized`, it answers with a descriptor's bytes as if they were text. For Avro, for
    what was registered as a descriptor, and for a file that refers to another one it fails.
    """

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        told = super().answer(method, path, body)
        if "format=serialized" not in path:
            return told
        if "message" not in told["schema"] or told["references"]:
            raise ErrorAnswer(500, 0, "a syntax error")
        return told | {"schema": "\n\x05Order\x12\x04shop\ufffd"}
