"""When the slow tests last passed: `make test-slow` writes it down, to be committed, and `.ci/run` prints it.

Usage: slow_run.py write build/slow-tests.xml | slow_run.py print
"""

import datetime as dt
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

RECORD = Path(__file__).with_name("slow-run.txt")


def write(report: Path, record: Path) -> str:
    """Write the record of a run in which every case passed; its text. Any other run exits with the reason."""
    cases = list(ET.parse(report).iter("testcase"))
    if any(case.find(result) is not None for case in cases for result in ("skipped", "failure", "error")):
        sys.exit("not every slow test passed, so no record of this run")
    if changed := _git(record.parent, "status", "--porcelain", "--untracked-files=no"):
        sys.exit(f"the tests ran on uncommitted changes, so no record of this run:\n{changed}")
    commit = _git(record.parent, "rev-parse", "HEAD")
    text = f"{dt.datetime.now(dt.UTC):%Y-%m-%d} {commit} {len(cases)}\n"
    record.write_text(text)
    return text


def describe(record: Path) -> str:
    """The record as a sentence, with its distance from HEAD."""
    if not record.is_file():
        return "slow tests: no run on record (make test-slow)"
    date, commit, cases = record.read_text().split()
    try:
        since = f"{_git(record.parent, 'rev-list', '--count', f'{commit}..HEAD')} commits ago"
    except subprocess.CalledProcessError:
        since = "which this clone does not have"
    return f"slow tests: all {cases} passed on {date} at {commit[:12]}, {since}"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", report]:
            print(f"{write(Path(report), RECORD).strip()} in {RECORD}: commit it")
        case ["print"]:
            print(describe(RECORD))
        case _:
            sys.exit(__doc__)
