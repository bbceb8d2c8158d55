"""kafka-python brings a copy of Kafka's schemas, of another release than the brokers."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from spark_kafka_eos.kafka.protocol.versions import RANGES
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.proxy_frames import message_class

_NEWEST = 1 << 15
_OTHER_NAMES = {"bitfield": "int32"}  # kafka-python's own type for a set of bits


def layout(schema: Mapping[str, Any], version: int) -> list[Any]:
    """What decides the bytes of a message in this version: its fields' types, tags, and where null is allowed."""
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}

    def of(fields: list[Mapping[str, Any]]) -> Iterator[Any]:
        for field in fields:
            if has(field["versions"], version):
                kind = field["type"].removeprefix("[]")
                inner = field.get("fields") or common.get(kind)
                tag = field["tag"] if has(field.get("taggedVersions"), version) else None
                content = list(of(inner)) if inner else _OTHER_NAMES.get(kind, kind)
                yield kind != field["type"], content, tag, has(field.get("nullableVersions"), version)

    return [has(schema["flexibleVersions"], version), list(of(schema["fields"]))]


def has(versions: str | None, version: int) -> bool:
    """Whether Kafka's notation ("3+", "0-7", "4", "none") includes this version."""
    found = re.fullmatch(r"(\d+)(\+|-(\d+))?", versions or "none")
    if found is None:
        return False
    oldest, rest, newest = found.groups()
    return int(oldest) <= version <= int(newest or (_NEWEST if rest else oldest))


@cache
def of_kafka(name: str) -> Mapping[str, Any]:
    (jar,) = (path for path in jars.files(jars.kafka()) if path.name.startswith("kafka-clients-"))
    with zipfile.ZipFile(jar) as archive:
        text = archive.read(f"common/message/{name}.json").decode()
    schema: Mapping[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
    return schema


@pytest.mark.parametrize(
    ("api", "version"), [(api, each) for api, (oldest, newest) in RANGES.items() for each in range(oldest, newest + 1)]
)
@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_every_message_has_the_layout_that_the_brokers_know(api: str, version: int, kind: str) -> None:
    ours, theirs = message_class(f"{api}{kind}").json, of_kafka(f"{api}{kind}")
    assert ours["apiKey"] == theirs["apiKey"]
    assert layout(ours, version) == layout(theirs, version)
