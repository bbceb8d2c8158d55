"""The pages for readers: where they are, and how their examples run.

The pages' convention: python blocks of a page share a namespace; `localhost:9092` stands for the broker and `/tmp/` for
a folder of the test's own; an expression followed by `# -> value`, on one line, is compared with that value.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "PERFORMANCE.md"))]
)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"^(?P<indent>\s*)(?P<expression>\S.*?)\s+# -> (?P<value>.+)$", re.MULTILINE)


def run(
    page: str,
    bootstrap: str = "localhost:9092",
    folder: str = "/tmp",
    *,
    between: Callable[[], None] = lambda: None,
    **names: object,
) -> int:
    """Run the page's blocks, `between` after each; how many there were. `names` are there from the beginning."""
    namespace: dict[str, object] = {**names, "check": check}
    blocks = python_blocks(ROOT / page)
    for number, block in enumerate(blocks, start=1):
        code = block.replace("localhost:9092", bootstrap).replace("/tmp/", f"{folder}/")
        exec(compile(compare(code), f"{page}, block {number}", "exec"), namespace)
        between()
    return len(blocks)


def python_blocks(page: Path) -> list[str]:
    """The page's blocks of Python, in their order."""
    return _BLOCK.findall(page.read_text())


def compare(code: str) -> str:
    """The code with each shown value turned into a call of `check`."""
    return _SHOWN.sub(r"\g<indent>check(\g<expression>, \g<value>)", code)


def named(name: str) -> object:
    """What a page names as `ledger.entry.serial`, without `spark_kafka_eos`."""
    parts = name.split(".")
    found = importlib.import_module(".".join(["spark_kafka_eos", *parts[:2]]))
    for part in parts[2:]:
        found = getattr(found, part)
    return found


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
