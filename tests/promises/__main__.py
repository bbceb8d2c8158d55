"""How many promises each page makes and what shows them; with a page's name, the text of it that has no promise.

Usage: python -m tests.promises [PAGE | accept]; `accept` once you have read that text of the pages that you changed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from tests.promises import COVERED, REST, Promise, digest_of_rest, function, pages, promises, rest_of


def slow_only(promise: Promise) -> bool:
    """Whether no test of every run shows the promise."""
    return all((found := function(test)) is not None and found.slow for test in promise.tests)


def table() -> Table:
    columns = ("page", "promises", "tests", "in every run", "slow only")
    shown = Table(*columns[:1], box=None)
    for column in columns[1:]:
        shown.add_column(column, justify="right")
    total: list[Promise] = []
    for page in pages():
        listed = promises(page)
        total += listed
        shown.add_row(page, *counts(listed))
    shown.add_row("all", *counts(total))
    for page, test in COVERED.items():
        shown.add_row(page, "", test)
    return shown


def counts(listed: Sequence[Promise]) -> list[str]:
    """Promises, distinct tests, promises with a test in every run, and the others."""
    tests = {test for promise in listed for test in promise.tests}
    slow = sum(map(slow_only, listed))
    return [str(number) for number in (len(listed), len(tests), len(listed) - slow, slow)]


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            Console(width=120).print(table())
        case ["accept"]:
            REST.write_text(json.dumps({page: digest_of_rest(page) for page in sorted(pages())}, indent=1) + "\n")
        case [page]:
            print("\n\n".join(rest_of(page)))
        case _:
            sys.exit(__doc__)
