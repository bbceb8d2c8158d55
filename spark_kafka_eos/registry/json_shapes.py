"""From a JSON schema to the shape of its values: the columns that keep every field which the schema names.

Schemas that a value must fit all at once are merged: those of `allOf`, the one that a `$ref` refers to and what stands
beside it, and the only branch of `oneOf` or `anyOf` that is not null. Drafts up to 7 ignore what stands beside a
`$ref`: it restricts nothing, but a field that it alone names has a column. A schema that holds for some values only, as
another branch, `then` or `dependentSchemas`, must name no field that the merged shape lacks. Otherwise the part is
text: its JSON.

Source: JSON Schema, drafts 4 to 2020-12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from referencing import Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7

from spark_kafka_eos.registry.nesting import Nesting, UnsupportedSchema

ShapeKind = Literal["string", "integer", "number", "boolean", "text", "struct", "map", "list"]

_ARROW = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
}
# JSON's types, of which "number" has the integers, too.
_TYPES = {"number": frozenset({"number", "integer"})}
_NULL = frozenset({"null"})
# The words with which a schema of a draft up to 7 can name fields.
_NAMING = {"properties", "allOf", "oneOf", "anyOf", "if", "dependencies", "items", "additionalProperties"}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the values of a part are. `parts` has a struct's fields; of a map or a list the one kind of its values."""

    kind: ShapeKind
    parts: Mapping[str, Shape] = field(default_factory=dict)
    required: frozenset[str] = field(default=frozenset(), compare=False)  # whatever else a struct's value has
    defaults: tuple[Any, ...] = field(default=(), compare=False)  # of a part that several schemas describe, the first

    @property
    def element(self) -> Shape:
        """Of a map's or a list's values."""
        return self.parts["element"]

    @property
    def arrow(self) -> pa.DataType:
        match self.kind:
            case "struct":
                return pa.struct([pa.field(name, part.arrow) for name, part in self.parts.items()])
            case "map":
                return pa.map_(pa.string(), self.element.arrow)
            case "list":
                return pa.list_(pa.field("element", self.element.arrow))
        return _ARROW[self.kind]


TEXT = Shape("text")


class _Part(NamedTuple):
    """A schema, and how its references are resolved there. `above` has the references that lead to it."""

    schema: Any
    specification: Specification[Any]
    resolver: Any
    above: Nesting

    def below(self, schema: Any) -> _Part:
        resource = self.specification.create_resource(schema)  # may have an `$id` of its own
        return self._replace(schema=schema, resolver=self.resolver.in_subresource(resource))

    def referred(self, reference: str) -> _Part:
        try:
            referent = self.resolver.lookup(reference)
        except Unresolvable as error:
            raise UnsupportedSchema(f"nothing is found under {reference}") from error
        return _Part(
            referent.contents,
            self.specification.detect(referent.contents),
            referent.resolver,
            self.above.within(str(id(referent.contents)), reference),
        )


@dataclass(slots=True)
class _Conjunction:
    """What schemas say together of a value that fits all of them."""

    types: frozenset[str] | None = None  # None: of any
    fields: dict[str, list[_Part]] = field(default_factory=dict)
    other_fields: list[_Part] = field(default_factory=list)  # additionalProperties
    has_map: bool = False  # one of them has these alone
    has_patterns: bool = False
    items: list[_Part] = field(default_factory=list)
    first_items: list[_Part] = field(default_factory=list)  # of a tuple
    required: set[str] = field(default_factory=set)
    defaults: list[Any] = field(default_factory=list)
    branches: list[list[_Part]] = field(default_factory=list)  # of each oneOf and anyOf: a value fits some of them
    conditional: list[_Part] = field(default_factory=list)  # for some values only
    ignored: list[_Part] = field(default_factory=list)  # beside a `$ref`, in drafts up to 7
    is_dynamic: bool = False  # what a reference refers to depends on who refers to its schema

    @property
    def has_parts(self) -> bool:
        return bool(self.fields or self.other_fields or self.items or self.first_items)

    @property
    def partial(self) -> list[_Part]:
        """What need not hold for a value."""
        return [*self.conditional, *self.ignored, *(part for branches in self.branches for part in branches)]

    def narrow(self, types: frozenset[str] | None) -> None:
        if types is not None:
            self.types = types if self.types is None else self.types & types


def shape(schema: Any, resolver: Any) -> Shape:
    """The shape of the schema's values; `resolver` is that of its root. Raises UnsupportedSchema."""
    return _shape([_Part(schema, DRAFT7.detect(schema), resolver, Nesting())])


def _shape(places: Iterable[_Part]) -> Shape:
    return _shape_of(_merged(places))


def _shape_of(merged: _Conjunction) -> Shape:
    if merged.is_dynamic:
        return TEXT
    base = _base(merged)
    if base == TEXT and len(merged.branches) == 1 and not merged.has_parts:
        base = _common(merged)
    for part in merged.ignored:
        beside = _shape([part])
        if base.kind == beside.kind == "struct":
            base = replace(base, parts={**beside.parts, **base.parts})
    made = base if all(_keeps(base, [place]) for place in merged.partial) else TEXT
    return replace(made, defaults=tuple(merged.defaults[:1]))


def _base(merged: _Conjunction) -> Shape:
    """The shape without branches and conditions."""
    types = merged.types
    if types is None:
        types = frozenset({"object"}) if merged.fields else frozenset()
    match sorted(types - _NULL):
        case ["object"] if merged.fields and not merged.has_map:
            fields = {name: _shape(places) for name, places in merged.fields.items()}
            return Shape("struct", fields, frozenset(merged.required))
        case ["object"] if merged.has_map and not (merged.fields or merged.has_patterns):
            return Shape("map", {"element": _shape(merged.other_fields)})
        case ["array"] if merged.items and not merged.first_items:
            return Shape("list", {"element": _shape(merged.items)})
        case ["integer", "number"]:
            return Shape("number")
        case [("string" | "integer" | "number" | "boolean") as kind]:
            return Shape(kind)
    return TEXT


def _common(merged: _Conjunction) -> Shape:
    """The shape that all branches have, else TEXT."""
    common: Shape | None = None
    for place in merged.branches[0]:
        try:
            branch = _merged([place])
            branch.narrow(merged.types)
            branch.required |= merged.required
            made = _shape_of(branch)
        except UnsupportedSchema:  # it contains itself, or has too many parts
            return TEXT
        if common is not None and common != made:
            return TEXT
        common = made if common is None else replace(common, required=common.required & made.required)
    return common or TEXT


def _keeps(shape: Shape, places: Sequence[_Part]) -> bool:
    """Whether a value of this shape has every field that these schemas name."""
    if shape.kind in _ARROW:
        return True
    try:
        merged = _merged(places)
    except UnsupportedSchema:
        return False
    if merged.is_dynamic:
        return False
    if not all(_keeps(shape, [place]) for place in merged.partial):
        return False
    match shape.kind:
        case "struct":
            return not merged.has_map and all(
                name in shape.parts and _keeps(shape.parts[name], fields) for name, fields in merged.fields.items()
            )
        case "map":
            return all(_keeps(shape.element, fields) for fields in (*merged.fields.values(), merged.other_fields))
    return all(_keeps(shape.element, items) for items in (merged.items, *([place] for place in merged.first_items)))


def _merged(places: Iterable[_Part]) -> _Conjunction:
    merged = _Conjunction()
    pending = list(places)[::-1]
    while pending:
        place = pending.pop()
        place.above.count()
        if not isinstance(place.schema, dict):
            continue
        if "$ref" in place.schema:
            pending.append(place.referred(place.schema["$ref"]))
            beside = {word: content for word, content in place.schema.items() if word != "$ref"}
            place = place._replace(schema=beside)
            if place.specification in (DRAFT4, DRAFT6, DRAFT7):
                merged.ignored += [place] if beside.keys() & _NAMING else []
                continue
        pending += [*_conjuncts(place, merged)][::-1]
        _add(place, merged)
    return merged


def _conjuncts(place: _Part, merged: _Conjunction) -> Iterator[_Part]:
    """What a value of this schema fits as well. Branches, of which it need not fit all, are added to `merged`."""
    schema = place.schema
    yield from map(place.below, schema.get("allOf", ()))
    for word in ("oneOf", "anyOf"):
        branches = [place.below(branch) for branch in schema.get(word, ()) if _types(branch) != _NULL]
        if len(branches) == 1:
            yield branches[0]
        elif branches:
            merged.branches.append(branches)
        elif word in schema:
            merged.narrow(_NULL)


def _add(place: _Part, merged: _Conjunction) -> None:
    schema = place.schema
    merged.narrow(_types(schema))
    merged.required.update(schema.get("required", ()))
    merged.defaults += [schema["default"]] if "default" in schema else []
    for name, part in schema.get("properties", {}).items():
        merged.fields.setdefault(name, []).append(place.below(part))
    merged.has_patterns |= bool(schema.get("patternProperties"))
    if isinstance(schema.get("additionalProperties"), dict):
        merged.other_fields.append(place.below(schema["additionalProperties"]))
        merged.has_map |= not schema.get("properties")
    items = schema.get("items")
    if isinstance(items, dict):
        merged.items.append(place.below(items))
    merged.first_items += map(place.below, items if isinstance(items, list) else schema.get("prefixItems", ()))
    if "if" in schema:
        merged.conditional += [place.below(schema[word]) for word in ("then", "else") if word in schema]
    for word in ("dependentSchemas", "dependencies"):
        merged.conditional += [place.below(part) for part in schema.get(word, {}).values() if isinstance(part, dict)]
    merged.is_dynamic |= "$dynamicRef" in schema or "$recursiveRef" in schema


def _types(schema: Any) -> frozenset[str] | None:
    """The types of its values as far as the schema itself says; None if it does not."""
    if not isinstance(schema, dict):
        return None
    restrictions = []
    if "type" in schema:
        kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
        restrictions.append(frozenset().union(*(_TYPES.get(kind, {kind}) for kind in kinds)))
    if "const" in schema:
        restrictions.append(frozenset({_type(schema["const"])}))
    if "enum" in schema:
        restrictions.append(frozenset(map(_type, schema["enum"])))
    return frozenset.intersection(*restrictions) if restrictions else None


def _type(value: Any) -> str:
    """JSON's type of a value of `json.loads`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "integer" if isinstance(value, int) or value.is_integer() else "number"
