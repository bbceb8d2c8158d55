"""A process that commits a row to PostgreSQL, so slowly that a test can kill it: it prints when the row is on its way.

Arguments: the server, the version to commit after. It ends if its input does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.broker.test_postgresql import table_at


def slowly() -> Iterator[tuple[str]]:
    yield ("half",)
    print("half", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    table_at(sys.argv[1]).commit(slowly(), "of a process", after=int(sys.argv[2]))
