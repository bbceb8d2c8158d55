"""Which SQL may run over each Arrow batch of a stream: what makes the same of a record whenever and wherever it runs.
Pure.

How records are divided into batches follows from Kafka's answers, and Spark may run a task again, with other batches
and later. So a query may look at one record at a time, keeps their order, and knows neither clock nor chance. What is
not known to be so is refused. The input is DuckDB's own syntax tree (`json_serialize_sql`) and its catalogue of
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TABLE = "records"

Node = Mapping[str, Any]

# Parts of a SELECT that look at more than one record, or leave some out by chance.
_PARTS = {
    "group_expressions": "GROUP BY",
    "group_sets": "GROUP BY",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "sample": "a sample",
}
_MODIFIERS = {"ORDER_MODIFIER": "ORDER BY", "LIMIT_MODIFIER": "LIMIT", "DISTINCT_MODIFIER": "DISTINCT"}
_FROM = {
    "EMPTY": "a SELECT without FROM",
    "JOIN": "a join",
    "TABLE_FUNCTION": "a table function",
    "PIVOT": "PIVOT",
    "EXPRESSION_LIST": "VALUES",
}
_EXPRESSIONS = {"WINDOW": "a window function", "SUBQUERY": "a subquery as a value", "PARAMETER": "a parameter"}

# Words that are functions without brackets, unless a column has that name.
_WORDS = frozenset(
    {
        "current_catalog",
        "current_date",
        "current_localtime",
        "current_localtimestamp",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    }
)
# Functions that DuckDB calls constant within a query only because they depend on the time zone, which is fixed here.
_BY_TIME_ZONE = frozenset(
    {
        "+",
        "-",
        "century",
        "date_diff",
        "date_part",
        "date_sub",
        "date_trunc",
        "datediff",
        "datepart",
        "datesub",
        "datetrunc",
        "day",
        "dayname",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "decade",
        "era",
        "generate_series",
        "hour",
        "isodow",
        "isoyear",
        "julian",
        "last_day",
        "make_timestamptz",
        "microsecond",
        "millennium",
        "millisecond",
        "minute",
        "month",
        "monthname",
        "quarter",
        "range",
        "second",
        "strftime",
        "time_bucket",
        "timezone",
        "timezone_hour",
        "timezone_minute",
        "week",
        "weekday",
        "weekofyear",
        "year",
        "yearweek",
    }
)
_NOT_IN_CATALOGUE = frozenset({"->", "unnest", "ifnull"})


@dataclass(slots=True)
class Function:
    """What the catalogue says of the functions of a name: their kinds, stabilities, and the texts of macros."""

    kinds: set[str] = field(default_factory=set)
    stabilities: set[str] = field(default_factory=set)
    macros: list[str] = field(default_factory=list)


def refused(tree: Node, functions: Mapping[str, Function], parsed: Callable[[str], Node]) -> str | None:
    """What the query has that it may not have, None if there is nothing. `parsed` is the tree of a macro's text."""
    statements = tree.get("statements", [])
    if len(statements) != 1:
        return "more than one statement"
    return next(_of_select(statements[0]["node"], frozenset(), functions, parsed), None)


def _of_select(
    node: Node, ctes: frozenset[str], functions: Mapping[str, Function], parsed: Callable[[str], Node]
) -> Iterator[str]:
    """`ctes` are the names of WITH, each of which was looked at where it is defined."""
    if node["type"] != "SELECT_NODE":
        yield (
            node["type"].removesuffix("_NODE").replace("_", " ").replace("SET OPERATION", "UNION, INTERSECT or EXCEPT")
        )
        return
    for modifier in node["modifiers"]:
        yield _MODIFIERS.get(modifier["type"], modifier["type"])
    for part, refusal in _PARTS.items():
        if node.get(part):
            yield refusal
    if node["aggregate_handling"] != "STANDARD_HANDLING":
        yield "GROUP BY"
    for entry in node["cte_map"]["map"]:
        body = entry["value"]
        inner = body["query_node"] if "query_node" in body else body["query"]["node"]
        yield from _of_select(inner, ctes, functions, parsed)
        ctes |= {entry["key"].lower()}
    yield from _of_source(node["from_table"], ctes, functions, parsed)
    for expressions in (node["select_list"], node["where_clause"]):
        yield from _of_expression(expressions, functions, parsed)


def _of_source(
    table: Node, ctes: frozenset[str], functions: Mapping[str, Function], parsed: Callable[[str], Node]
) -> Iterator[str]:
    kind = table["type"]
    if table.get("sample"):
        yield "a sample"
    if kind == "SUBQUERY":
        yield from _of_select(table["subquery"]["node"], ctes, functions, parsed)
    elif kind == "BASE_TABLE":
        name = table["table_name"].lower()
        if name != TABLE and name not in ctes:
            yield f"the table {table['table_name']!r}"
    else:
        yield _FROM.get(kind) or str(kind)


def _of_expression(part: object, functions: Mapping[str, Function], parsed: Callable[[str], Node]) -> Iterator[str]:
    """All expressions in this part of the tree."""
    if isinstance(part, list):
        for item in part:
            yield from _of_expression(item, functions, parsed)
    if not isinstance(part, Mapping):
        return
    match part.get("class"):
        case str(kind) if kind in _EXPRESSIONS:
            yield _EXPRESSIONS[kind]
            return
        case "COLUMN_REF":
            names = part["column_names"]
            if len(names) == 1 and names[0].lower() in _WORDS:
                yield names[0]
        case "FUNCTION":
            yield from _of_function(part, functions, parsed)
    for item in part.values():
        yield from _of_expression(item, functions, parsed)


def _of_function(call: Node, functions: Mapping[str, Function], parsed: Callable[[str], Node]) -> Iterator[str]:
    name: str = call["function_name"].lower()
    if name in _NOT_IN_CATALOGUE or (function := functions.get(name)) is None:  # DuckDB names those that do not exist
        return
    if "aggregate" in function.kinds or "window" in function.kinds:
        yield f"the aggregate function {name}"
    elif "VOLATILE" in function.stabilities:
        yield f"the function {name}, which is not deterministic"
    elif "CONSISTENT_WITHIN_QUERY" in function.stabilities and name not in _BY_TIME_ZONE:
        yield f"the function {name}, which depends on the clock or the session"
    for text in function.macros:
        wrong = next(_of_expression(parsed(f"SELECT {text}"), functions, parsed), None)
        if wrong is not None:
            yield f"the function {name}, which uses {wrong}"
