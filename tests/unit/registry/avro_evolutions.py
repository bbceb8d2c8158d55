"""Avro schemas as a writer has them and as a query has them after some changes, and records of the writer.

The schemas are JSON as a registry has it. A record is a tree of Python's values, so that it can be written again after
its schema became smaller: a union is a pair of branch and value, all numbers are raw.
"""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBERS = ("int", "long", "float", "double")
_PROMOTIONS = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",)}
_PROMOTIONS |= {"string": ("bytes",), "bytes": ("string",)}
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos", "local-timestamp-millis",
        "local-timestamp-micros", "local-timestamp-nanos",
    ),
    "string": ("uuid",),
}  # fmt: skip
_PRIMITIVES = ("null", "boolean", "string", "bytes", *_NUMBERS)
_NAMES = ("A", "B", "C")
_SPACES = ("", "one", "two.three")
_INTS = (0, 1, -1, 63, 64, 20_000, -719_162, 2**31 - 1, -(2**31))
_LONGS = (*_INTS, 1_795_741_323_456, -1_795_741_323_456_789, 2**62, 2**63 - 1, -(2**63))
Tree = Any


@dataclass(frozen=True)
class Evolution:
    writer: Tree
    reader: Tree
    records: tuple[Any, ...]

    def bodies(self) -> list[bytes]:
        return [encoded(self.writer, record) for record in self.records]


def evolution(seed: int, records: int = 3) -> Evolution:
    """A writer's schema, a query's schema with up to three changes, and records of the writer."""
    chance = random.Random(seed)
    schemas = _Schemas(chance)
    writer = schemas.record(0)
    reader = copy.deepcopy(writer)
    for holder, _ in list(_slots([writer], 0)):
        if isinstance(holder, dict):
            holder.pop("default", None)  # Java would compare those of nested records with the query's fields
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        _change(chance, schemas, reader)
    return Evolution(writer, reader, tuple(value(chance, writer) for _ in range(records)))


class _Schemas:
    """Makes types; each name is used once."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._names: set[tuple[str, str]] = set()
        self._fields = 0

    def named(self, kind: str) -> dict[str, Any]:
        space, name = self._chance.choice(_SPACES), self._chance.choice(_NAMES)
        while (space, name) in self._names:
            name = f"N{len(self._names)}"
        self._names.add((space, name))
        return {"type": kind, "name": name, "namespace": space}

    def field(self, depth: int, kind: Tree = None) -> dict[str, Any]:
        self._fields += 1
        made = {"name": f"f{self._fields}", "type": self.any(depth) if kind is None else kind}
        if self._chance.random() < 0.3:
            made["default"] = default(self._chance, made["type"])
        return made

    def record(self, depth: int) -> dict[str, Any]:
        made = self.named("record")
        return made | {"fields": [self.field(depth + 1) for _ in range(self._chance.choice((1, 1, 2, 3)))]}

    def leaf(self) -> Tree:
        match self._chance.randrange(6):
            case 0 | 1:
                return self._chance.choice(_PRIMITIVES)
            case 2 | 3:
                kind = self._chance.choice(("int", "long", "long", "long", "string"))
                return {"type": kind, "logicalType": self._chance.choice(_LOGICAL[kind])}
            case 4:
                return {"type": "bytes"} | _decimal(self._chance, 40)
        return self.sized()

    def sized(self) -> Tree:
        match self._chance.randrange(4):
            case 0:
                return self.named("fixed") | {"size": 12, "logicalType": "duration"}
            case 1:
                return self.named("fixed") | {"size": 16, "logicalType": "uuid"}
            case 2:
                return self.named("fixed") | {"size": 8} | _decimal(self._chance, 20)  # 18 digits fit
        return self.named("fixed") | {"size": self._chance.choice((1, 12, 16))}

    def enum(self) -> Tree:
        return self.named("enum") | {"symbols": ["X", "Y", "Z"][: self._chance.choice((1, 2, 3))]}

    def union(self, depth: int) -> Tree:
        branches: list[Tree] = []
        for _ in range(self._chance.choice((1, 2, 2, 3))):
            kind = self.any(depth + 1, union=False)
            if all(_bare(kind) != _bare(branch) for branch in branches):
                branches.append(kind)
        if self._chance.random() < 0.7 and "null" not in branches:
            branches.insert(self._chance.choice((0, len(branches))), "null")
        return branches

    def any(self, depth: int, *, union: bool = True) -> Tree:
        match self._chance.randrange(16 if depth < 3 else 8):
            case 8:
                return self.record(depth)
            case 9:
                return {"type": "array", "items": self.any(depth + 1)}
            case 10:
                return {"type": "map", "values": self.any(depth + 1)}
            case 11 | 12:
                return self.enum()
            case 13 | 14 | 15 if union:
                return self.union(depth)
        return self.leaf()


def _decimal(chance: random.Random, most: int) -> dict[str, Any]:
    precision = chance.randrange(1, most)
    return {"logicalType": "decimal", "precision": precision, "scale": chance.randrange(min(precision, 12) + 1)}


def kind_of(tree: Tree) -> str:
    """Of Avro's types; "union" for a list."""
    return "union" if isinstance(tree, list) else tree if isinstance(tree, str) else tree["type"]


def _bare(tree: Tree) -> str:
    """What may be in a union once."""
    return f"{tree['namespace']}.{tree['name']}" if kind_of(tree) in {"record", "enum", "fixed"} else kind_of(tree)


def kind_in_json(tree: Tree) -> str:
    """What a default of the type is in JSON: of a union, it is of the first branch of that kind."""
    kinds = {"string": "text", "bytes": "text", "fixed": "text", "enum": "text", "map": "object", "record": "object"}
    return (kinds | dict.fromkeys(_NUMBERS, "number")).get(kind_of(tree), kind_of(tree))


def default(chance: random.Random, tree: Tree) -> Any:
    """Of a union, a value of any branch."""
    match kind_of(tree):
        case "union":
            branch = chance.choice(tree)
            return default(chance, next(first for first in tree if kind_in_json(first) == kind_in_json(branch)))
        case "null":
            return None
        case "boolean":
            return chance.random() < 0.5
        case "int" | "long":
            return chance.choice((0, 1, -86_400))
        case "float" | "double":
            return chance.choice((0.0, 1.5, -2.25))
        case "string":
            return chance.choice(("", "Zoë", str(_uuid(chance))))
        case "bytes":
            return chance.choice(("\u0001", "\u00ff\u0001"))
        case "fixed":
            return "\0" * (tree["size"] - 1) + "\u0007"
        case "enum":
            return chance.choice(tree["symbols"])
        case "array":
            return [default(chance, tree["items"]) for _ in range(chance.randrange(3))]
        case "map":
            return {f"k{at}": default(chance, tree["values"]) for at in range(chance.randrange(3))}
    return {field["name"]: default(chance, field["type"]) for field in tree["fields"]}


# What changes.


def _slots(container: Any, key: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a type in `container[key]`, that itself first."""
    yield container, key
    tree = container[key]
    match kind_of(tree):
        case "union":
            for number in range(len(tree)):
                yield from _slots(tree, number)
        case "array":
            yield from _slots(tree, "items")
        case "map":
            yield from _slots(tree, "values")
        case "record":
            for field in tree["fields"]:
                yield from _slots(field, "type")


def _change(chance: random.Random, schemas: _Schemas, reader: Tree) -> None:
    """Change one type, or a record's fields. The schema may have become one that Avro refuses."""
    slots = list(_slots([reader], 0))
    container, key = chance.choice(slots)
    tree = container[key]
    before = copy.deepcopy(container)
    match kind_of(tree):
        case "record":
            _change_record(chance, schemas, tree)
        case "enum":
            _change_enum(chance, tree)
        case "union":
            _change_union(chance, schemas, tree)
        case _ if chance.random() < 0.2 and not isinstance(container, list):
            container[key] = chance.choice((["null", tree], [tree, "null"], [tree, "boolean", "null"]))
            if kind_of(tree) in {"null", "boolean"}:
                container[key] = tree
        case "array" | "map":
            container[key] = schemas.any(3)
        case "fixed":
            container[key] = _changed_fixed(chance, tree)
        case kind:
            container[key] = _changed_primitive(chance, schemas, kind, tree)
    if isinstance(container, list) and len({*map(_bare, container)}) < len(container):
        container[:] = before
    for holder, _ in list(_slots([reader], 0)):
        if isinstance(holder, dict) and "default" in holder:
            holder["default"] = default(chance, holder["type"])


def _change_record(chance: random.Random, schemas: _Schemas, tree: Tree) -> None:
    fields = tree["fields"]
    at = chance.randrange(len(fields))
    match chance.randrange(9):
        case 0 | 1:
            added = schemas.field(2)
            if chance.random() < 0.8:
                added["default"] = default(chance, added["type"])
            fields.insert(at, added)
        case 2 if len(fields) > 1:
            del fields[at]
        case 3:
            chance.shuffle(fields)
        case 4 if chance.random() < 0.4:  # the name of another field, which may be gone later
            fields[at]["aliases"] = [chance.choice(fields)["name"]]
        case 4 | 5:
            old = fields[at]["name"]
            fields[at]["aliases"] = [old]
            fields[at]["name"] += "_new"
            if chance.random() < 0.3:
                added = schemas.field(2) | {"name": old}
                fields.insert(at, added | {"default": default(chance, added["type"])})
        case _:
            _rename(chance, tree)


def _rename(chance: random.Random, tree: Tree) -> None:
    """Another name or namespace, with or without the alias for the old one."""
    full = f"{tree['namespace']}.{tree['name']}".lstrip(".")
    if chance.random() < 0.6:
        tree["aliases"] = [full]
    if chance.random() < 0.5:
        tree["namespace"] = chance.choice(_SPACES)
    else:
        tree["name"] += "_new"


def _change_enum(chance: random.Random, tree: Tree) -> None:
    match chance.randrange(4):
        case 0:
            tree["symbols"] = tree["symbols"] + ["W"]
        case 1:
            tree["symbols"] = ["W", *tree["symbols"][1:]]
            if chance.random() < 0.6:
                tree["default"] = "W"
        case 2:
            chance.shuffle(tree["symbols"])
        case _:
            _rename(chance, tree)


def _change_union(chance: random.Random, schemas: _Schemas, tree: Tree) -> None:
    match chance.randrange(3):
        case 0:
            chance.shuffle(tree)
        case 1 if len(tree) > 1:
            del tree[chance.randrange(len(tree))]
        case _:
            kind = schemas.any(3, union=False)
            if all(_bare(kind) != _bare(branch) for branch in tree):
                tree.insert(chance.randrange(len(tree) + 1), kind)


def _changed_fixed(chance: random.Random, tree: Tree) -> Tree:
    kept = {key: tree[key] for key in ("type", "name", "namespace", "size")}
    match chance.randrange(5):
        case 0:
            return kept
        case 1:
            return kept | _decimal(chance, 20)
        case 2:
            return kept | {"size": 12, "logicalType": "duration"}
        case 3:
            return kept | {"size": tree["size"] + 1}
    _rename(chance, tree)
    return tree


def _changed_primitive(chance: random.Random, schemas: _Schemas, kind: str, tree: Tree) -> Tree:
    match chance.randrange(8):
        case 0:
            return schemas.leaf()
        case 1:
            return kind
        case 2 | 3 if kind in _PROMOTIONS:
            kind = chance.choice(_PROMOTIONS[kind])
    if kind in _LOGICAL and chance.random() < 0.8:
        return {"type": kind, "logicalType": chance.choice(_LOGICAL[kind])}
    if kind == "bytes":
        if isinstance(tree, dict) and "scale" in tree and chance.random() < 0.7:
            more = chance.choice((0, 0, 1, 4, -1))
            changed = tree | {
                "precision": tree["precision"] + chance.choice((0, 4, -3, 20)),
                "scale": tree["scale"] + more,
            }
            return changed if changed["precision"] >= changed["scale"] >= 0 and changed["precision"] > 0 else tree
        return {"type": "bytes"} | _decimal(chance, 40)
    return kind


# Records.


def _uuid(chance: random.Random) -> str:
    digits = f"{chance.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def value(chance: random.Random, tree: Tree) -> Any:
    match kind_of(tree):
        case "union":
            number = chance.randrange(len(tree))
            return number, value(chance, tree[number])
        case "fixed":
            return _bytes(chance, tree, tree["size"])
        case "enum":
            return chance.choice(tree["symbols"])
        case "array":
            length = chance.choice((0, 1, 2, 20)) if chance.random() < 0.5 else 1
            return [value(chance, tree["items"]) for _ in range(length)]
        case "map":
            return {f"k{at}": value(chance, tree["values"]) for at in range(chance.choice((0, 1, 3)))}
        case "record":
            return {field["name"]: value(chance, field["type"]) for field in tree["fields"]}
    return _primitive(chance, tree)


def _primitive(chance: random.Random, tree: Tree) -> Any:
    match kind_of(tree):
        case "boolean":
            return chance.random() < 0.5
        case "int":
            return chance.choice(_INTS) if chance.random() < 0.7 else chance.randrange(-(2**31), 2**31)
        case "long":
            return chance.choice(_LONGS) if chance.random() < 0.7 else chance.randrange(-(2**63), 2**63)
        case "float":
            return chance.choice((0.0, -0.0, 0.1, math.nan, math.inf))
        case "double":
            return chance.choice((0.0, 1.1, math.nan, -math.inf, chance.random() * 1e300))
        case "string":
            texts = ("", "a", "Zoë", "x" * 70, _uuid(chance))
            return texts[-1] if isinstance(tree, dict) else chance.choice(texts)
        case "bytes":
            return _bytes(chance, tree, None)
    return None


def _bytes(chance: random.Random, tree: Tree, size: int | None) -> bytes:
    if isinstance(tree, dict) and tree.get("logicalType") == "decimal":
        digits = min(chance.randrange(tree["precision"] + 2), tree["precision"])
        number = chance.choice((-1, 1)) * chance.randrange(10**digits)
        if chance.random() < 0.02:
            number = 10 ** (digits + 1)
        need = (number.bit_length() + 8) // 8
        return number.to_bytes(need if size is None or need > size else size, "big", signed=True)[-(size or need) :]
    text = chance.choice((b"", b"a", "Zoë".encode(), chance.randbytes(5), _uuid(chance).encode()))
    return text if size is None else chance.randbytes(size)


def encoded(tree: Tree, record: Any) -> bytes:
    """The record in Avro's binary form. Arrays are written in blocks of two, every other one with its size."""
    match kind_of(tree):
        case "union":
            number, inner = record
            return _long(number) + encoded(tree[number], inner)
        case "null":
            return b""
        case "boolean":
            return bytes([record])
        case "int" | "long":
            return _long(record)
        case "float" | "double":
            return struct.pack("<f" if kind_of(tree) == "float" else "<d", record)
        case "string":
            return bytes(_long(len(record.encode())) + record.encode())
        case "bytes":
            return bytes(_long(len(record)) + record)
        case "fixed":
            return bytes(record)
        case "enum":
            return _long(tree["symbols"].index(record))
        case "array":
            return _blocks([encoded(tree["items"], item) for item in record])
        case "map":
            return _blocks([encoded("string", key) + encoded(tree["values"], item) for key, item in record.items()])
    return b"".join(encoded(field["type"], record[field["name"]]) for field in tree["fields"])


def _blocks(items: list[bytes]) -> bytes:
    body = b""
    for number, at in enumerate(range(0, len(items), 2)):
        block = items[at : at + 2]
        content = b"".join(block)
        body += _long(-len(block)) + _long(len(content)) + content if number % 2 else _long(len(block)) + content
    return body + b"\0"


def _long(number: int) -> bytes:
    folded = (number << 1) ^ (number >> 63)
    body = b""
    while folded > 0x7F:
        body += bytes([folded & 0x7F | 0x80])
        folded >>= 7
    return body + bytes([folded])


# A smaller one.


def smaller(case: Evolution) -> Iterator[Evolution]:
    """With a record less, a field less, or one on its own; every one of them is valid as far as `case` was."""
    if len(case.records) > 1:
        for record in case.records:
            yield Evolution(case.writer, case.reader, (record,))
    for field in case.writer["fields"] if len(case.writer["fields"]) > 1 else ():
        writer, reader = _without(case.writer, field["name"]), _without(case.reader, field["name"])
        records = tuple({key: item for key, item in record.items() if key != field["name"]} for record in case.records)
        if reader["fields"]:
            yield Evolution(writer, reader, records)
    for field in case.reader["fields"] if len(case.reader["fields"]) > 1 else ():
        reader = _without(case.reader, field["name"])
        if reader["fields"]:
            yield Evolution(case.writer, reader, case.records)
    for field, same in ((field, same) for field in case.writer["fields"] for same in case.reader["fields"]):
        names = {field["name"]}
        if (
            names & {same["name"], *same.get("aliases", ())}
            and kind_of(field["type"]) == kind_of(same["type"]) == "record"
        ):
            records = tuple(record[field["name"]] for record in case.records)
            yield Evolution(field["type"], same["type"], records)


def _without(record: Tree, name: str) -> Tree:
    fields = [field for field in record["fields"] if name not in {field["name"], *field.get("aliases", ())}]
    return record | {"fields": fields}


def text(tree: Tree) -> str:
    return json.dumps(tree, ensure_ascii=False)
