"""Values of random JSON schemas are read if jsonschema says that they fit, and written as json has them."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7, DRAFT202012

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.rows import rows_of

_VALUES = 8  # of each schema
_DRAFTS = {
    "http://json-schema.org/draft-07/schema#": (jsonschema.Draft7Validator, DRAFT7),
    "https://json-schema.org/draft/2020-12/schema": (jsonschema.Draft202012Validator, DRAFT202012),
}
_LEAVES: tuple[Any, ...] = (
    {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": ["string", "null"]},
    {"type": ["integer", "null"]}, {"type": ["integer", "string"]}, {"type": ["number", "integer"]}, {}, True,
    {"enum": ["a", "b", None]}, {"enum": [1, 2.5]}, {"const": "a"}, {"type": "string", "maxLength": 2},
    {"type": "number", "multipleOf": 0.5}, {"type": "array"}, {"type": "object"},
)  # fmt: skip
_SCALARS: tuple[Any, ...] = ("", "a", "b", "Zoë", "12", 0, 1, -1, 2.5, 2**53, -(2**63), 1e300, True, False, None)
_TYPES = {"string": (str,), "integer": (int,), "number": (int, float)}
_NAMES = ("a", "b", "c", "d", "e")


class _Schemas:
    """Random schemas of one draft with the schemas that they refer to: some of their own, and one of another text."""

    def __init__(self, chance: random.Random, draft: str) -> None:
        self._chance, self._is_new = chance, "2020" in draft
        self.definitions: dict[str, Any] = {}
        self.other = {"$id": "https://other.example/o.json", **self._object(3)}
        self.definitions = {f"d{at}": self._object(2) for at in range(2)}
        self.root = {"$schema": draft, **self._object(0), "definitions": self.definitions}

    def _part(self, depth: int) -> Any:
        match self._chance.randrange(10 if depth < 4 else 4):
            case 4 | 5:
                return self._object(depth)
            case 6:
                return {"type": "array", "items": self._part(depth + 1)} | self._tuple(depth)
            case 7:
                part = self._part(depth + 1)
                return {"type": "object", "additionalProperties": {} if part is True else part}
            case 8:
                return {self._chance.choice(("oneOf", "anyOf")): [{"type": "null"}, self._part(depth + 1)]}
            case 9:
                return {self._chance.choice(("oneOf", "anyOf")): [self._part(depth + 1) for _ in range(2)]}
        return self._chance.choice(_LEAVES)

    def _tuple(self, depth: int) -> dict[str, Any]:
        if self._chance.random() < 0.8:
            return {}
        if self._is_new:
            return {"prefixItems": [self._part(depth + 1)]}
        return {"items": [self._part(depth + 1)], "additionalItems": self._part(depth + 1)}

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._chance.sample(_NAMES, self._chance.randrange(1, 4))
        made: dict[str, Any] = {"type": "object", "properties": {name: self._part(depth + 1) for name in names}}
        if self._chance.random() < 0.4:
            made["required"] = self._chance.sample(names, 1)
        if depth < 4:
            self._add_more(made, depth + 1)
        return made

    def _add_more(self, made: dict[str, Any], depth: int) -> None:
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            match self._chance.randrange(8):
                case 0 | 1:
                    made.setdefault("allOf", []).append(self._referred(depth) or self._object(depth))
                case 2:
                    made |= self._referred(depth) or {}
                case 3:
                    made["oneOf"] = [{"type": "null"}, self._object(depth)]
                case 4:
                    made["anyOf"] = [self._object(depth), self._object(depth)]
                case 5:
                    made["anyOf"] = [{"required": [name]} for name in made["properties"]]
                case 6:
                    made |= {"if": {"required": ["a"]}, "then": self._object(depth)}
                case 7:
                    made["dependentSchemas" if self._is_new else "dependencies"] = {"a": self._object(depth)}

    def _referred(self, depth: int) -> dict[str, Any] | None:
        """A reference, if there is something to refer to that does not refer to this."""
        if depth > 2 or not self.definitions:
            return None
        return {
            "$ref": self._chance.choice((*(f"#/definitions/{name}" for name in self.definitions), self.other["$id"]))
        }

    def value(self, schema: Any) -> Any:
        """A value that fits the schema more often than not, and whose fields it names."""
        if not isinstance(schema, dict) or self._chance.random() < 0.03:
            return self._chance.choice(_SCALARS)
        choices = [*self._conjuncts(schema)]
        fields: dict[str, list[Any]] = {}
        for each in choices:
            for name, part in each.get("properties", {}).items():
                fields.setdefault(name, []).append(part)
        if fields:
            always = {name for each in choices for name in each.get("required", ())}
            return {
                name: self.value({"allOf": parts} if len(parts) > 1 else parts[0])
                for name, parts in fields.items()
                if name in always or self._chance.random() < 0.7
            }
        for each in choices:
            if "additionalProperties" in each:
                return {f"k{at}": self.value(each["additionalProperties"]) for at in range(self._chance.randrange(3))}
            if "items" in each:
                return self._list(each)
        return self._scalar(choices)

    def _conjuncts(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """This schema and others that its value may have to fit."""
        more = [*schema.get("allOf", ()), *schema.get("dependencies", {}).values()]
        more += [*schema.get("dependentSchemas", {}).values(), schema.get("then")]
        more += [self._chance.choice(schema[word]) for word in ("oneOf", "anyOf") if word in schema]
        reference = schema.get("$ref")
        if reference is not None:
            more.append(
                self.other if reference == self.other["$id"] else self.definitions[reference.rpartition("/")[2]]
            )
        return [schema, *(found for each in more if isinstance(each, dict) for found in self._conjuncts(each))]

    def _list(self, schema: dict[str, Any]) -> list[Any]:
        first = schema.get("prefixItems", schema["items"] if isinstance(schema["items"], list) else [])
        rest = schema.get("additionalItems", True) if isinstance(schema["items"], list) else schema["items"]
        return [*map(self.value, first), *(self.value(rest) for _ in range(self._chance.randrange(3)))]

    def _scalar(self, schemas: list[dict[str, Any]]) -> Any:
        for each in schemas:
            if "const" in each or "enum" in each:
                return self._chance.choice(each.get("enum", [each.get("const")]))
            if "type" in each:
                kind = self._chance.choice([each["type"]] if isinstance(each["type"], str) else each["type"])
                match kind:
                    case "array":
                        return [self._chance.choice(_SCALARS)]
                    case "object":
                        return {}
                    case "null":
                        return None
                    case "boolean":
                        return self._chance.random() < 0.5
                return self._chance.choice([value for value in _SCALARS if type(value) in _TYPES[kind]])
        return self._chance.choice((*_SCALARS, [1, None], {}))


def compare(seeds: range) -> Counter[str]:
    """What became of the values of each seed's schema. An AssertionError has the seed, the schema and the value."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        chance = random.Random(seed)
        draft = chance.choice([*_DRAFTS])
        schemas = _Schemas(chance, draft)
        values = [schemas.value(schemas.root) for _ in range(_VALUES)]
        validator, specification = _DRAFTS[draft]
        other = schemas.other
        known: Registry[Any] = Resource.from_contents(other, specification) @ Registry()
        fits = [validator(schemas.root, registry=known).is_valid(value) for value in values]
        text = SchemaText("JSON", json.dumps(schemas.root), ((other["$id"], json.dumps(other)),))
        target = format_of.__wrapped__(QuerySchema(text))
        outcomes["struct" if pa.types.is_struct(target.arrow) else "text"] += 1
        rows = rows_of(pa.array([json.dumps(value).encode() for value in values]))
        column = target.reader(text)(rows)
        for row, (value, is_valid) in enumerate(zip(values, fits, strict=True)):
            cause = rows.faults.of(row)
            case = f"seed {seed}: {json.dumps(value)} of {text.text} with {json.dumps(other)}, {cause}"
            assert (cause is Cause.UNDECODABLE) is not is_valid, case
            if cause is not None:
                outcomes[cause] += 1
                assert cause is not Cause.OUT_OF_RANGE or "1e+300" in case
                continue
            try:
                (body,) = target.write(column.slice(row, 1), b"").to_pylist()
            except InvalidRow:
                outcomes["a null is left out that the schema wants"] += 1
                assert "null" in json.dumps(value), case
                continue
            again = None if body is None else json.loads(body)
            assert _without_nulls(again) == _without_nulls(value), f"{case}: {again}"
            assert body is None or validator(schemas.root, registry=known).is_valid(again), f"{case}: {again}"
            outcomes["the same again"] += 1
    return outcomes


def _without_nulls(value: Any) -> Any:
    """Without fields that are null, which are the same as those that are not there. True and 1 are told apart."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return (isinstance(value, bool), value)


@pytest.mark.parametrize(
    "seeds",
    [
        range(1_000),
        *(
            pytest.param(range(start, start + 50_000), marks=[pytest.mark.slow, pytest.mark.timeout(3_600)])
            for start in range(1_000, 101_000, 50_000)
        ),
    ],
    ids=lambda seeds: f"{len(seeds)} from {seeds.start}",
)
def test_values_of_many_schemas_are_read_and_written_as_jsonschema_and_json_have_them(seeds, cell):
    outcomes = compare(seeds)
    for outcome, count in outcomes.items():
        cell("Values of JSON schemas, read and written", f"{len(seeds):,} schemas", outcome, f"{count:,}")
    assert outcomes["the same again"] > 3 * len(seeds)
    assert outcomes["undecodable"] > len(seeds)
    assert outcomes["struct"] > len(seeds) / 4
    assert outcomes["text"] > len(seeds) / 4
    assert outcomes["incompatible"] + outcomes["a null is left out that the schema wants"] < len(seeds) / 4
