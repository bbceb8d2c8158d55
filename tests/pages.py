"""The pages for readers: where they are, and how their examples run.

The pages' convention: python blocks of a page share a namespace; `localhost:9092` stands for the broker,
`localhost:9192` for one of another cluster, and `/tmp/` for a folder of the test's own; an expression followed by
`# -> value`, on one line, is compared with that value.

Commands (`sh`) and programs (`python`) are run by tests, unless a comment before them says by which one else they are,
or why they are not: `<!-- run by tests/… -->`, `<!-- not run: … -->`. Parts of programs (`py`) have such a comment.
"""

from __future__ import annotations

import pkgutil
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "PERFORMANCE.md"))]
)
# The topics that the examples of a page need. Each page is run to its end, in one session and as a program.
EXAMPLES = {
    "docs/index.md": ["visits", "visits-copy"],
    "docs/source.md": ["clicks", "clicks-copy"],
    "docs/sink.md": ["payments", "payments-copy", "payments-loaded", "payments-marked", "payments-relaxed"],
    "docs/foreachbatch.md": ["sensors", "sensors-loud", "sensors-even", "sensors-odd", "sensors-remote"],
    "docs/tables.md": ["bookings", "bookings-seen"],
    "docs/arrow.md": [
        "readings",
        "readings-loud",
        "readings-copy",
        "readings-sql",
        "readings-five",
        "readings-dead",
        "readings-avro",
        "readings-named",
    ],
    "docs/real-time.md": ["bids", "bids-loud"],
    "docs/dead-letters.md": ["orders-in", "orders-amounts", "orders-dead"],
    "docs/tracing.md": ["parcels", "parcels-copy"],
    "docs/clusters.md": ["trades"],
    "docs/kafka-checkpoint.md": ["tickets", "tickets-copy"],
    "docs/monitoring.md": ["watched", "watched-copy"],
    "docs/chaos.md": ["survived"],
    "docs/deploying.md": [],
}
# The topics that they need on another cluster.
EXAMPLES_ELSEWHERE = {"docs/clusters.md": ["trades-mirror"]}
# Pages whose programs need more than topics, and the tests that have it.
RUN_BY = {
    "README.md": "tests/spark/test_readme.py",
    "docs/debezium.md": "tests/spark/test_schemas.py",
    "docs/errors.md": "tests/unit/documentation/test_reference_pages.py",
    "docs/pipelines.md": "tests/spark/test_pipelines.py",
    "docs/schemas.md": "tests/spark/test_schemas.py",
    "docs/simulation.md": "tests/unit/lab/simulation/test_documentation.py",
    "docs/table-streams.md": "tests/spark/test_table_streams.py",
    "docs/verify.md": "tests/spark/test_readme.py",
}
_FENCE = re.compile(
    r"^(?P<indent> *)(?:<!-- (?P<note>[^\n]*) -->\n\n *)?```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^(?P<indent>\s*)(?P<expression>\S.*?)\s+# -> (?P<value>.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page; `note` is the comment before it, "" if there is none."""

    page: str
    number: int
    language: str
    text: str
    note: str

    def __str__(self) -> str:
        return f"{self.page}, block {self.number}"


def blocks(page: Path) -> list[Block]:
    """The page's fenced blocks, in their order, each without its indentation."""
    name = str(page.relative_to(ROOT))
    return [
        Block(name, number, found["language"], textwrap.dedent(found["text"]), found["note"] or "")
        for number, found in enumerate(_FENCE.finditer(page.read_text()), start=1)
    ]


def run(
    page: str,
    bootstrap: str = "localhost:9092",
    folder: str = "/tmp",
    *,
    elsewhere: str = "localhost:9192",
    between: Callable[[], None] = lambda: None,
    **names: object,
) -> int:
    """Run the page's blocks, `between` after each; how many there were. `names` are there from the beginning."""
    namespace: dict[str, object] = {**names, "check": check}
    programs = python_blocks(ROOT / page)
    for number, block in enumerate(programs, start=1):
        code = here(block, bootstrap, folder, elsewhere)
        exec(compile(compare(code), f"{page}, block {number}", "exec"), namespace)
        between()
    return len(programs)


def here(text: str, bootstrap: str, folder: str, elsewhere: str) -> str:
    """The text with the test's own brokers and folder."""
    own = {"localhost:9092": bootstrap, "localhost:9192": elsewhere, "/tmp/": f"{folder}/"}
    for shown, used in own.items():
        text = text.replace(shown, used)
    return text


def python_blocks(page: Path) -> list[str]:
    """The page's blocks of Python, in their order."""
    return _BLOCK.findall(page.read_text())


def readmes_example(bootstrap: str, folder: str, source: str, target: str) -> str:
    """The README's program for a broker, a folder and topics of a test's own; it has the query `query`."""
    program = python_blocks(ROOT / "README.md")[0]
    for shown, used in {
        "localhost:9092": bootstrap,
        "/tmp/": f"{folder}/",
        'subscribe="orders"': f'subscribe="{source}"',
        'topic="orders-paid"': f'topic="{target}"',
        'id", "orders-paid"': f'id", "{target}"',
    }.items():
        assert shown in program, shown
        program = program.replace(shown, used)
    return program


def compare(code: str) -> str:
    """The code with each shown value turned into a call of `check`."""
    return _SHOWN.sub(r"\g<indent>check(\g<expression>, \g<value>)", code)


def named(name: str) -> object:
    """What a page names as `ledger.entry.serial`, without `spark_kafka_eos`."""
    return pkgutil.resolve_name(f"spark_kafka_eos.{name}")


class Requirement(NamedTuple):
    """A row of docs/kip-98.md: what is required, which code keeps it, and which tests fail without it."""

    what: str
    code: list[str]
    tests: list[str]


def kip_98_rows(columns: int) -> list[list[str]]:
    """The cells of the rows, headings among them, of the tables of docs/kip-98.md that have so many columns."""
    lines = (ROOT / "docs/kip-98.md").read_text().splitlines()
    rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| "))
    return [row for row in rows if len(row) == columns]


def requirements() -> list[Requirement]:
    """The rows of the page's tables of requirements; code and tests as they are named there."""
    return [Requirement(what, quoted(code), quoted(tests)) for what, code, tests in kip_98_rows(3) if code != "code"]


def quoted(cell: str) -> list[str]:
    """What a cell has in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def check(found: object, shown: object) -> None:
    """Raise AssertionError unless the line's value is the one that the page shows."""
    assert found == shown
