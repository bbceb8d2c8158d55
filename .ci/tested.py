"""What was tested with what: tables of the tests' reports, in tested.json and docs/tested.md.

Usage: tested.py write REPORT... | tested.py check REPORT...

`write` makes both files of these reports. `check` fails if a column that the reports have is another one in
tested.json, so that the page claims only what CI ran. The release of Python may be another one there: CI takes the one
that its machine has.
"""

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

RECORD = Path(__file__).with_name("tested.json")
PAGE = Path(__file__).parents[1] / "docs" / "tested.md"
BEGIN, END = "<!-- made by `make tested` -->\n", "<!-- end -->\n"
TABLES = ("Spark releases", "Kafka releases", "Message formats")  # see the fixture `cell` in tests/matrix.py

Table = dict[str, dict[str, str]]
"""Column -> row -> what it shows. A column's name has parts: `Spark 4.0.5, Kafka 3.9.1, Python 3.11`."""


def tables(reports: Iterable[Path]) -> dict[str, Table]:
    """What tests noted in JUnit reports. Exits if one of them did not pass."""
    found: dict[str, Table] = {name: {} for name in TABLES}
    for case in (case for report in reports for case in ET.parse(report).iter("testcase")):
        for cell in case.findall("properties/property[@name='cell']"):
            name, row, column, shown = ast.literal_eval(cell.get("value", ""))
            if name not in found:
                continue
            if any(case.find(result) is not None for result in ("failure", "error")):
                sys.exit(f"{case.get('name')} did not pass, so there is no record of this run")
            found[name].setdefault(column, {})[row] = shown
    return found


def differences(record: dict[str, Table], ran: dict[str, Table]) -> list[str]:
    """The columns that ran and are others in the record."""
    return [
        f"{name}, {column}"
        for name, table in ran.items()
        for column, rows in table.items()
        if rows not in (of for other, of in record[name].items() if _cluster(other) == _cluster(column))
    ]


def _cluster(column: str) -> str:
    return column.partition(", Python")[0]


def markdown(record: dict[str, Table]) -> str:
    """The tables, each with a head row for every part of its columns' names."""
    return "\n".join(line for name in TABLES if record[name] for line in _lines(name, record[name]))


def _lines(name: str, table: Table) -> list[str]:
    columns = sorted(table, key=lambda column: [int(number) for number in re.findall(r"\d+", column)])
    parts = [[part.split(" ", 1) for part in column.split(", ")] for column in columns]
    heads = [[label, *(of[at][1] for of in parts)] for at, (label, _) in enumerate(parts[0])]
    names = sorted({row for rows in table.values() for row in rows})
    rows = [[row, *(table[column].get(row, "–") for column in columns)] for row in names]
    first, *rest = [f"| {' | '.join(cells)} |" for cells in heads + rows]
    return [f"## {name}", "", first, f"|{'---|' * (len(columns) + 1)}", *rest, ""]


def page(text: str, record: dict[str, Table]) -> str:
    """The page's text with the record's tables between its marks."""
    before, after = text.split(BEGIN, maxsplit=1)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n{markdown(record)}\n{END}{after}"


def main(command: str, reports: list[Path]) -> None:
    ran = tables(reports)
    if command == "write":
        RECORD.write_text(json.dumps(ran, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(page(PAGE.read_text(), ran))
    elif wrong := differences(json.loads(RECORD.read_text()), ran):
        sys.exit("docs/tested.md does not show what ran (make tested):\n  " + "\n  ".join(wrong))


if __name__ == "__main__":
    match sys.argv[1:]:
        case [("write" | "check") as command, *reports] if reports:
            main(command, [Path(each) for each in reports])
        case _:
            sys.exit(__doc__)
