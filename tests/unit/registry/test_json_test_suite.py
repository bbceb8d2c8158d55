"""The official JSON Schema test suite: what fits its schema is read and written again, and nothing else is.

The suite is a part of the source distribution of `jsonschema`, which is downloaded once, to `build/`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag

import pyarrow as pa
import pytest

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.json_schema import JsonFormat
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import rows_of
from tests.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
REMOTES = "http://localhost:1234/"
# Why a schema of the suite is not read: Spark has no recursive types, and the drafts' own schemas are recursive, too.
UNSUPPORTED = re.compile(r"contains itself|nothing is found under https?://json-schema\.org/")
# A schema of one's own for schemas, which leaves keywords out, counts as draft 7.
OWN_DIALECT = "schema that uses custom metaschema with with no validation vocabulary"


@pytest.fixture(scope="module")
def suite() -> dict[str, Any]:
    """The suite's files by their paths in it."""
    release = version("jsonschema")
    archive = ROOT / "build" / f"jsonschema-{release}.tar.gz"
    if not archive.exists():
        options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(archive.parent)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, f"jsonschema=={release}"], check=True)
    content: dict[str, Any] = {}
    with tarfile.open(archive) as files:
        for member in files:
            file = files.extractfile(member) if "/json/" in member.name and member.name.endswith(".json") else None
            if file is not None:
                content[member.name.partition("/json/")[2]] = json.load(file)
    return content


def references(suite: dict[str, Any], draft: str, schema: Any) -> tuple[tuple[str, str], ...]:
    """The suite's documents that the schema refers to, by whatever base, and those that these refer to."""
    documents = {
        REMOTES + path.removeprefix("remotes/"): json.dumps(content)
        for path, content in suite.items()
        if path.startswith("remotes/") and (f"/{draft}/" in path or "/draft" not in path)
    }
    needed: dict[str, str] = {}
    pending = [json.dumps(schema)]
    while pending:
        named = re.findall(r'"\$(?:ref|dynamicRef|recursiveRef|schema)": "([^"]+)"', pending.pop())
        names = {urldefrag(name).url.rpartition("/")[2] for name in named} - {""}
        new = {url: text for url, text in documents.items() if url.rpartition("/")[2] in names and url not in needed}
        needed |= new
        pending += new.values()
    return tuple(needed.items())


def equal(one: Any, other: Any) -> bool:
    """As JSON has it: 1 is 1.0, and not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def target_of(text: SchemaText, name: str) -> JsonFormat | None:
    """None if the schema is refused for one of the known reasons."""
    try:
        target = JsonFormat(text)
        target.reader(text)
    except UnsupportedSchema as refusal:
        if UNSUPPORTED.search(str(refusal)):
            return None
        raise AssertionError(name) from refusal
    return target


def outcome(target: JsonFormat, text: SchemaText, value: Any) -> str:
    rows = rows_of(pa.array([json.dumps(value).encode()]))
    column = target.reader(text)(rows)
    if (cause := rows.faults.of(0)) is not None:
        return str(cause)
    (body,) = target.write(column, b"").to_pylist()
    if equal(value, None if body is None else json.loads(body)):
        return "the same again"
    lost = isinstance(value, dict) and value.items() >= json.loads(body).items()
    return "without fields that no schema names, or that are null" if lost else "another value"


@pytest.mark.parametrize("draft", DRAFTS)
def test_what_fits_a_schema_of_the_suite_is_read_and_written_again_and_nothing_else(suite, draft, cell):
    outcomes: Counter[str] = Counter()
    for path, cases in suite.items():
        if Path(path).parent != Path("tests", draft):
            continue
        for case in cases:
            schema = case["schema"]
            schema = {"$schema": DRAFTS[draft], **schema} if isinstance(schema, dict) else schema
            text = SchemaText("JSON", json.dumps(schema), references(suite, draft, schema))
            target = target_of(text, f"{path}, {case['description']}")
            if target is None:
                outcomes["schemas that are refused by name"] += 1
                continue
            for test in case["tests"]:
                name = f"{path}, {case['description']}, {test['description']}: {test['data']}"
                found = outcome(target, text, test["data"])
                outcomes[found] += 1
                if test["valid"]:
                    assert found != "another value", name
                    untyped = found == Cause.INCOMPATIBLE and not isinstance(test["data"], dict)
                    assert found != Cause.UNDECODABLE or case["description"] == OWN_DIALECT, name
                    assert found != Cause.INCOMPATIBLE or untyped, name
                else:
                    assert found == Cause.UNDECODABLE, name
    for found, count in outcomes.items():
        cell("The JSON Schema test suite", draft, found, f"{count:,}")
    assert outcomes["the same again"] > 200
    assert outcomes["the same again"] > 10 * outcomes["schemas that are refused by name"]
