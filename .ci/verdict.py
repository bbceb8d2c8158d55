"""Green must mean proven: fails a run with a skipped test, or without a test that the sources have for every run.

Prints what ran, what could not run here, and the slowest files.

Usage: verdict.py build/tests.xml
"""

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

# What needs more than prerequisites.sh asks for, and proves nothing that other tests do not prove on Apache Kafka.
_MAY_BE_SKIPPED = {"tests.broker.test_kfake", "tests.spark.test_kfake"}  # need Go
_ALL_SLOW = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)


def faults(report: Path, tests: Path) -> list[str]:
    """What keeps the JUnit report from proving anything about the files under `tests`; empty if nothing does."""
    cases = [(f"{case.get('classname')}.", str(case.get("name")), case) for case in ET.parse(report).iter("testcase")]
    bad = [f"{result}: {place}{name}" for place, name, case in cases for result in _not_passed(case)]
    ran: defaultdict[str, set[str]] = defaultdict(set)
    for place, name, _ in cases:
        outer = f"{place.rstrip('.').rpartition('.')[0]}."  # the file, if the test is a class's method
        for of in (place, outer):
            ran[of].add(name.partition("[")[0])
    none = [missing for file in expected(tests) for missing in _missing(file, ran[module(file, tests)])]
    return bad + [f"nothing ran of {missing}" for missing in none]


def _missing(file: Path, ran: set[str]) -> list[str]:
    """What had to run of a file, and did not: the file itself, or tests of it."""
    return [f"{file}::{name}" for name in in_every_run(file) if name not in ran] if ran else [str(file)]


def _not_passed(case: ET.Element) -> Iterator[str]:
    """`skipped` includes what failed as expected."""
    for result in ("skipped", "failure", "error"):
        if case.find(result) is not None and not (result == "skipped" and case.get("classname") in _MAY_BE_SKIPPED):
            yield result


def expected(tests: Path) -> list[Path]:
    """The files of tests, without those that only `make test-slow` runs."""
    return [file for file in sorted(tests.rglob("test_*.py")) if not _ALL_SLOW.search(file.read_text())]


@functools.cache
def in_every_run(file: Path) -> list[str]:
    """The tests of a file of which some case is in every run: all that are defined without a condition, and none of
    whose decorators makes a case slow.
    """
    return [
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not any("slow" in ast.unparse(decorator).lower() for decorator in node.decorator_list)
    ]


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
    cases = list(ET.parse(report).iter("testcase"))
    skipped = {
        str(case.get("classname")): left.get("message") for case in cases if (left := case.find("skipped")) is not None
    }
    for name, why in skipped.items():
        print(f"left out: {name}: {why}")
    ran = Counter(str(case.get("classname")).split(".")[1] for case in cases if case.find("skipped") is None)
    print(
        f"{ran.total()} tests passed, {'none' if not skipped else 'nothing else'} was skipped:",
        ", ".join(f"{ran[suite]} {suite}" for suite in sorted(ran)),
    )
    print("the slowest files:", ", ".join(f"{name} {took:.0f} s" for name, took in slowest(report)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
