#!/usr/bin/env bash
# deltalake 1.6.6: an append whose app transaction the table has already is committed again; an older one moves it back.
#
# Guess (confidence 75 %): a write with an app transaction (app id and version) that the table has already, or that is
# older than the table's, is refused or skipped. That is what the action `txn` of Delta's log is for: Delta's sink for
# Spark skips such a write, and the protocol has it to make writes idempotent.
# Seen: it is committed, and its rows are there twice. With an older version, the table's version of that app goes back,
# so even who asks for it first (`DeltaTable.transaction_version`) is told the older one afterwards. Only two writes at
# once conflict ("Concurrent transaction failed"): what the table had when it was loaded is not compared.
# So a consumer that appends a batch of Kafka's offsets with its batch id as the version, and repeats the batch after a
# crash, has its rows twice, unless it looks itself, in the same snapshot that it then writes with.
#
# Needs Python 3.11. Installs deltalake 1.6.6 and pyarrow 26.0.1 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
cat > look.py <<'PY'
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError


def append(table, version):
    once = CommitProperties(app_transactions=[Transaction("query", version)])
    write_deltalake(table, pa.table({"batch": [version]}), mode="append", commit_properties=once)


def state():
    table = DeltaTable("table")
    return sorted(table.to_pyarrow_table()["batch"].to_pylist()), table.transaction_version("query")


print("deltalake 1.6.6; appended version: the batches of the table's rows, the table's version of the app")
seen = []
for version in (1, 2, 2, 1):
    append("table", version)
    seen.append(state())
    print(f"{version}:", *seen[-1])
first, second = DeltaTable("table"), DeltaTable("table")  # both loaded before either has written
append(first, 3)
try:
    append(second, 3)
    at_once = "committed"
except CommitFailedError as error:
    at_once = str(error)
print("3, by two at once:", *state(), "the second one:", at_once)
assert "Concurrent transaction" in at_once and state() == ([1, 1, 2, 2, 3], 3)
assert seen[:2] == [([1], 1), ([1, 2], 2)]
assert seen[2:] == [([1, 2, 2], 2), ([1, 1, 2, 2], 1)], "this has changed: both were committed again"
PY
venv/bin/python look.py
