"""When the slow tests last passed: `make test-slow` writes it down, to be committed, and `.ci/run` prints it.

All of them take many hours, so each part that was run by itself (`make test-slow TESTS=tests/faults`) has its own line:
date, commit, number of cases, paths.

Usage: slow_run.py write build/slow-tests.xml tests/… | slow_run.py print
"""

import datetime as dt
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

RECORD = Path(__file__).with_name("slow-run.txt")


def write(report: Path, record: Path, *paths: str) -> str:
    """Write the record of a run of `paths` in which every case passed, instead of the last one of the same; its line.
    Any other run exits with the reason.
    """
    cases = list(ET.parse(report).iter("testcase"))
    if any(case.find(result) is not None for case in cases for result in ("skipped", "failure", "error")):
        sys.exit("not every slow test passed, so no record of this run")
    if not cases:
        sys.exit("no slow test ran, so no record of this run")
    changed = _git(record.parent, "status", "--porcelain", "--untracked-files=no", "--", ":!:*slow-run.txt")
    if changed:
        sys.exit(f"the tests ran on uncommitted changes, so no record of this run:\n{changed}")
    commit = _git(record.parent, "rev-parse", "HEAD")
    line = f"{dt.datetime.now(dt.UTC):%Y-%m-%d} {commit} {len(cases)} {' '.join(paths)}"
    others = [each for each in _lines(record) if each.split()[3:] != list(paths)]
    record.write_text("".join(f"{each}\n" for each in (line, *others)))
    return line


def describe(record: Path) -> str:
    """The record in sentences, each with its distance from HEAD."""
    said = [_described(record.parent, *line.split()) for line in _lines(record)]
    return "\n".join(said) or "slow tests: no run on record (make test-slow)"


def _described(repository: Path, date: str, commit: str, cases: str, *paths: str) -> str:
    try:
        since = f"{_git(repository, 'rev-list', '--count', f'{commit}..HEAD')} commits ago"
    except subprocess.CalledProcessError:
        since = "which this clone does not have"
    return f"slow tests of {' '.join(paths)}: all {cases} passed on {date} at {commit[:12]}, {since}"


def _lines(record: Path) -> list[str]:
    return record.read_text().splitlines() if record.is_file() else []


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", report, *paths] if paths:
            print(f"{write(Path(report), RECORD, *paths)} in {RECORD}: commit it")
        case ["print"]:
            print(describe(RECORD))
        case _:
            sys.exit(__doc__)
