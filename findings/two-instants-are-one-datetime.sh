#!/usr/bin/env bash
# pyspark 4.3.0: of two instants an hour apart, Spark Connect's client makes one datetime, and a map loses one of them.
#
# Guess (confidence 75 %): what is collected has as many different instants as Spark has, since datetime has `fold` for
# the hour that clocks repeat, and a classic session sets it.
# Seen: with the time zone of the process Europe/Berlin, 00:30 and 01:30 UTC of 2026-10-25 are both collected as 02:30.
# A classic session sets fold=1 for the second one, so `astimezone` gives each instant back. The client of Spark Connect
# does not: both are the first one, an hour off. And as the keys of a map the two are equal even with fold, so of a map
# with two entries one is left, in both kinds of session, without a word.
# So who writes collected rows to a database from a Python process that does not run in UTC moves an hour of rows once a
# year, and the same program does so only after it was moved to Spark Connect.
#
# Needs Python 3.11 and Java 17. Installs pyspark[connect] 4.3.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check "pyspark[connect]==4.3.0"
cat > look.py <<'PY'
import sys
from datetime import UTC

from pyspark.sql import SparkSession

builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.sql.session.timeZone", "UTC")
kind = sys.argv[1]
spark = (builder.remote("local[1]") if kind == "connect" else builder.master("local[1]")).getOrCreate()
FIRST, SECOND = "timestamp'2026-10-25 00:30:00'", "timestamp'2026-10-25 01:30:00'"
row = spark.sql(f"SELECT {FIRST} AS one, {SECOND} AS other, map({FIRST}, 1, {SECOND}, 2) AS entries").first()
found = [each.astimezone(UTC).strftime("%H:%M") for each in (row.one, row.other)]
print("pyspark 4.3.0,", kind, "session: 00:30 and 01:30 UTC become", *found, "and a map of both", row.entries)
assert found == (["00:30", "00:30"] if kind == "connect" else ["00:30", "01:30"]), "this has changed"
assert len(row.entries) == 1, "this has changed"
spark.stop()
PY
for kind in classic connect; do
  TZ=Europe/Berlin venv/bin/python look.py "$kind" 2>>log || { tail -n 20 log; exit 1; }
done
