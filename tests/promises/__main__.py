"""How many promises each page makes and what shows them (pytest collects all tests for that, which takes half a
minute); with a page's name, the text of it that has no promise.

Usage: python -m tests.promises [PAGE | accept]; `accept` once you have read that text of the pages that you changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.promises import COVERED, REST, EveryRun, Promise, digest_of_rest, every_run, pages, promises, rest_of


def table(run: EveryRun) -> Table:
    columns = ("page", "promises", "tests", "in every run", "slow only")
    shown = Table(*columns[:1], box=None)
    for column in columns[1:]:
        shown.add_column(column, justify="right")
    total: list[Promise] = []
    for page in pages():
        listed = promises(page)
        total += listed
        shown.add_row(page, *counts(listed, run))
    shown.add_row("all", *counts(total, run))
    for page, test in COVERED.items():
        shown.add_row(page, "", test)
    return shown


def counts(listed: Sequence[Promise], run: EveryRun) -> list[str]:
    """Promises, distinct tests, promises with a test in every run, and the others."""
    tests = {test for promise in listed for test in promise.tests}
    each_run = sum(any(map(run.has, promise.tests)) for promise in listed)
    return [str(number) for number in (len(listed), len(tests), each_run, len(listed) - each_run)]


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            Console(width=120).print(table(every_run()))
        case ["accept"]:
            REST.write_text(json.dumps({page: digest_of_rest(page) for page in sorted(pages())}, indent=1) + "\n")
        case [page]:
            print("\n\n".join(rest_of(page)))
        case _:
            sys.exit(__doc__)
