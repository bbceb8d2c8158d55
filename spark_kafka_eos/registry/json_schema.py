"""JSON Schema: values are validated by the schema that they were written with, and read as the query's.

| JSON Schema | Arrow, and so Spark |
|---|---|
| string, integer, number, boolean | string, int64, float64, bool |
| object with `properties` | struct |
| object with only `additionalProperties` of one schema | map with string keys |
| array with one schema of `items` | list |
| one of these or null | the same |
| everything else (several types, tuples, no type, …) | string: the part's text in JSON, read and written as it is |

`json_shapes` says which of these a part is. A null is written where the schema requires the field, of each value or
of this one, as `then` and branches do; elsewhere the field is left out. If the value does not fit so, as by
`minProperties`, all nulls that may be there are written.

Whoever writes to a topic may choose the schema of a value. So a pattern takes time linear in the value, or, if it looks
around or back, a bounded number of steps, and a schema's references are looked up among those of the registry only.

Source: JSON Schema, drafts 4 to 2020-12; Confluent Schema Registry, "JSON Schema serializer".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any
from urllib.parse import urljoin

import jsonschema_rs
import pyarrow as pa
from referencing import Registry as References
from referencing import Resource
from referencing.jsonschema import DRAFT7

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.errors import InvalidRow
from spark_kafka_eos.registry.client import SchemaText
from spark_kafka_eos.registry.json_shapes import TEXT, Shape, shape
from spark_kafka_eos.registry.json_values import (
    OutOfRange,
    Reader,
    Writer,
    json_text,
    reader,
    refuse_constant,
    values,
    writer,
)
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.rows import ReadColumn, Rows

# A value whose pattern needs more steps is not valid: milliseconds, where a plain engine needs hours.
BACKTRACKS = 100_000
_PATTERNS = jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS)

_DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DRAFTS = {
    "http://json-schema.org/draft-04/schema",
    "http://json-schema.org/draft-06/schema",
    _DRAFT_7,
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
}


class JsonFormat:
    def __init__(self, text: SchemaText) -> None:
        schema, self._validator, resolver = _parsed(text)
        try:
            self._shape = shape(schema, resolver)
        except (TypeError, AttributeError, RecursionError) as error:  # of a schema that it refers to
            raise UnsupportedSchema(f"not a JSON schema: {type(error).__name__}") from error
        self._read = reader(self._shape)
        self._writers: dict[pa.DataType, tuple[Writer, Writer]] = {}  # the other one with all nulls
        self.arrow: pa.DataType = self._shape.arrow
        self.name: str = schema.get("title", "") if isinstance(schema, dict) else ""

    def reader(self, written: SchemaText) -> ReadColumn:
        _, validator, _ = _parsed(written)

        def read(rows: Rows) -> pa.Array:
            data = rows.data.data
            values = []
            for number, (at, end) in enumerate(zip(rows.at.tolist(), rows.end.tolist(), strict=True)):
                value, cause = _value(bytes(data[at:end]), validator, self._read)
                values.append(value)
                if cause is not None:
                    rows.note_one(number, cause)
            rows.at = rows.end.copy()
            return pa.array(values, self.arrow)

        return read

    def write(self, column: pa.Array, prefix: bytes) -> pa.BinaryArray:
        convert = self._writers.get(column.type)
        if convert is None:
            both = writer(self._shape, column.type), writer(self._shape, column.type, nulls=True)
            convert = self._writers[column.type] = both
        return pa.array([self._written(value, *convert, prefix) for value in values(column)], pa.binary())

    def _written(self, value: object, convert: Writer, in_full: Writer, prefix: bytes) -> bytes | None:
        if value is None:
            return None
        plain = convert(value)
        try:
            error = next(self._validator.iter_errors(plain), None)
            if error is not None:
                fitting = _with_nulls(plain, in_full(value), self._validator)
                plain, error = (plain, error) if fitting is None else (fitting, None)
            text = json_text(plain)
        except ValueError:  # neither has these numbers, and its text may have the value
            raise InvalidRow("the value has what JSON has not: NaN or infinity") from None
        if error is not None:  # its text has the value
            path = _path(error.instance_path, self._shape)
            raise InvalidRow(f"{path} does not fit its JSON schema: {self._rule(error, plain)}")
        return prefix + text.encode()

    def _rule(self, error: jsonschema_rs.ValidationError, plain: Any) -> str:
        """What the value breaks, with the fields that it lacks: the schema names them, so they say nothing of it."""
        if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
            return error.kind.name
        lacking = {
            each.kind.property
            for each in self._validator.iter_errors(plain)
            if isinstance(each.kind, jsonschema_rs.ValidationErrorKind.Required)
            and each.instance_path == error.instance_path
        }
        return f"{error.kind.name} (it lacks {', '.join(sorted(lacking))})"


def _path(parts: Iterable[str | int], whole: Shape) -> str:
    """Where that is in a value, with `*` for the key of a map, which is the record's own."""
    said, here = "$", whole
    for part in parts:
        if here.kind == "struct" and part in here.parts:
            said, here = f"{said}.{part}", here.parts[str(part)]
        else:
            said += f"[{part}]" if isinstance(part, int) else ".*"
            here = here.element if here.kind in ("list", "map") else TEXT
    return said


_Nulls = frozenset[tuple[tuple[str | int, ...], str]]  # the path of an object, and a field in it
_MOST_TRIES = 50  # of a row, which may be of a schema with any number of branches


def _with_nulls(plain: Any, full: Any, validator: jsonschema_rs.Validator) -> Any:
    """`plain` with those nulls of `full` with which it fits, few if trying finds them; None if there are none."""
    pending: list[_Nulls] = [frozenset()]
    for _ in range(_MOST_TRIES):
        if not pending:
            break
        nulls = pending.pop()
        tried = deepcopy(plain)
        for path, name in nulls:
            _at(tried, path)[name] = None
        errors = list(validator.iter_errors(tried))
        if not errors:
            return tried
        pending += [nulls | more for more in reversed(_ways(errors, full)) if not more <= nulls]
    for *above, last in filter(None, _unfit(validator.iter_errors(full))):
        if isinstance(last, str) and last not in _at(plain, above):  # so it is a struct's null
            _at(full, above).pop(last, None)
    return full if validator.is_valid(full) else None


def _unfit(errors: Iterable[jsonschema_rs.ValidationError]) -> Iterator[list[str | int]]:
    """The paths of what does not fit, in branches, too."""
    for error in errors:
        yield error.instance_path
        match error.kind:
            case jsonschema_rs.ValidationErrorKind.AnyOf(branches) | jsonschema_rs.ValidationErrorKind.OneOfNotValid(
                branches
            ):
                yield from _unfit(each for branch in branches for each in branch)


def _ways(errors: list[jsonschema_rs.ValidationError], full: Any) -> list[_Nulls]:
    """The nulls of `full` that end errors of missing fields, in as many ways as the first branching has branches."""
    ways: list[_Nulls] = [frozenset()]
    for error in errors:
        match error.kind:
            case jsonschema_rs.ValidationErrorKind.Required(name):
                there = _at(full, error.instance_path)
                if name in there and there[name] is None:
                    ways = [way | {(tuple(error.instance_path), name)} for way in ways]
            case jsonschema_rs.ValidationErrorKind.AnyOf(branches) | jsonschema_rs.ValidationErrorKind.OneOfNotValid(
                branches
            ) if len(ways) == 1:
                ways = [ways[0] | way for branch in branches for way in _ways(branch, full)]
    return ways


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for part in path:
        value = value[part]
    return value


def _parsed(text: SchemaText) -> tuple[Any, jsonschema_rs.Validator, Any]:
    """The schema, its validator, and what finds its references. Raises UnsupportedSchema."""
    try:
        schema = _of_draft(json.loads(text.text), _DRAFT_7)
        draft = schema["$schema"] if isinstance(schema, dict) else _DRAFT_7
        root = _resource(schema)
        # By the id of the schema, as Confluent's Java has it.
        others = [
            (urljoin(root.id() or "", name), _of_draft(json.loads(other), draft)) for name, other in text.references
        ]
        registry = jsonschema_rs.Registry(others) if others else None
        validator_class = jsonschema_rs.validator_cls_for({"$schema": draft})
        validator = validator_class(schema, registry=registry, pattern_options=_PATTERNS, offline=True)
        references = References().with_resources((name, _resource(other)) for name, other in others)
    except jsonschema_rs.ValidationError as error:
        if error.kind.name == "$ref":
            raise UnsupportedSchema("nothing is found under one of its references") from error
        raise UnsupportedSchema(f"not a JSON schema: {error.kind.name}") from error
    except (ValueError, jsonschema_rs.ReferencingError, RecursionError) as error:
        raise UnsupportedSchema(f"not a JSON schema: {type(error).__name__}") from error
    return schema, validator, references.resolver_with_root(root)


def _of_draft(schema: Any, draft: str) -> Any:
    """The schema, which names the draft by which it is read: `draft` if it names none, or one of its own."""
    if not isinstance(schema, dict) or str(schema.get("$schema")).rstrip("#") in _DRAFTS:
        return schema
    return schema | {"$schema": draft}


def _resource(schema: Any) -> Resource[Any]:
    return Resource.from_contents(schema, default_specification=DRAFT7)


def _value(body: bytes, validator: jsonschema_rs.Validator, read: Reader) -> tuple[Any, Cause | None]:
    try:
        value = json.loads(body, parse_constant=refuse_constant)
        if not validator.is_valid(value):
            return None, Cause.OUT_OF_RANGE if _has_infinity(value) else Cause.UNDECODABLE
    except (ValueError, RecursionError):  # also half of a surrogate pair
        return None, Cause.UNDECODABLE
    try:
        return read(value), None
    except (OutOfRange, OverflowError):
        return None, Cause.OUT_OF_RANGE
    except (TypeError, ValueError, AttributeError):
        return None, Cause.INCOMPATIBLE


def _has_infinity(value: Any) -> bool:
    """Whether a number is larger than a float can be, as 1e400. The validator takes it for no number."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_infinity, parts)) or (isinstance(value, float) and math.isinf(value))
