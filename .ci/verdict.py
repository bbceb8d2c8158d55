"""Green must mean proven: fails a run with a skipped test, a suite with too few cases, or a file of which nothing ran.

Prints what ran, and the slowest files.

Usage: verdict.py build/tests.xml
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

LEAST = {"unit": 4000, "simulation": 1, "faults": 190, "broker": 540, "spark": 240}
"""The fewest cases of each folder of tests/ that a whole run has. Raise them as the suites grow."""

_ALL_SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)


def faults(report: Path, tests: Path) -> list[str]:
    """What keeps the JUnit report from proving anything about the files under `tests`; empty if nothing does."""
    cases = [(f"{case.get('classname')}.", case) for case in ET.parse(report).iter("testcase")]
    count = Counter(name.split(".")[1] for name, _ in cases if name.startswith("tests."))
    bad = [f"{result}: {name}{case.get('name')}" for name, case in cases for result in _not_passed(case)]
    few = [
        f"{count[suite]} cases of {suite}, fewer than {least}" for suite, least in LEAST.items() if count[suite] < least
    ]
    ran = tuple({name for name, _ in cases})
    none = [file for file in expected(tests) if not any(name.startswith(module(file, tests)) for name in ran)]
    return bad + few + [f"nothing ran of {file}" for file in none]


def _not_passed(case: ET.Element) -> Iterator[str]:
    """`skipped` includes what failed as expected."""
    yield from (result for result in ("skipped", "failure", "error") if case.find(result) is not None)


def expected(tests: Path) -> list[Path]:
    """The files of tests, without those that only `make test-slow` runs."""
    return [file for file in sorted(tests.rglob("test_*.py")) if not _ALL_SLOW.search(file.read_text())]


def module(file: Path, tests: Path) -> str:
    """The name that the file has in a report, with the dot after it."""
    return ".".join(file.relative_to(tests.parent).with_suffix("").parts) + "."


def slowest(report: Path, most: int = 20) -> list[tuple[str, float]]:
    """The files that took longest, with their seconds: what to look at first if a run takes too long."""
    took: defaultdict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):
        took[".".join(str(case.get("classname")).split(".")[1:3])] += float(case.get("time", 0))
    return sorted(took.items(), key=lambda item: -item[1])[:most]


def main(report: Path) -> None:
    if found := faults(report, Path(__file__).parents[1] / "tests"):
        sys.exit("nothing is proven:\n  " + "\n  ".join(found))
    ran = Counter(str(case.get("classname")).split(".")[1] for case in ET.parse(report).iter("testcase"))
    print(f"{ran.total()} tests passed, none was skipped:", ", ".join(f"{ran[suite]} {suite}" for suite in LEAST))
    print("the slowest files:", ", ".join(f"{name} {took:.0f} s" for name, took in slowest(report)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
