#!/usr/bin/env bash
# pyarrow 26.0.1: a third of the decimals with one digit after the point become another double than the nearest one.
#
# Guess (confidence 85 %): a cast of a decimal to a double gives the double that is nearest to it, as parsing its text
# does, and as a division of two exact doubles does.
# Seen: Arrow multiplies the unscaled number by a power of ten that is itself rounded (0.1, 0.01, 1e-4 …). So 0.3
# becomes 0.30000000000000004, and of the decimals from 0.1 to 9,999.9 every third is off by a bit; with two digits, as
# of money, every seventh. A cast to text and from there to a double is right, and so is DuckDB 2.0.1's own cast of the
# same column.
# So a column of amounts that passes through Arrow as a double is not equal to the same amounts from anywhere else, and
# a decimal that is made of it again, with more digits, shows it.
#
# Needs Python 3.11. Installs pyarrow 26.0.1 and duckdb 2.0.1 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1
cat > look.py <<'PY'
from decimal import Decimal

import duckdb
import pyarrow as pa

print("pyarrow 26.0.1, duckdb 2.0.1; the share of decimals that become another double than the nearest one")
for scale, least in ((1, 0.3), (2, 0.1)):
    decimals = [Decimal(number).scaleb(-scale) for number in range(1, 100_000)]
    nearest = [float(each) for each in decimals]
    amounts = pa.array(decimals, pa.decimal128(9, scale))
    casts = {
        "cast": amounts.cast(pa.float64()),
        "by text": amounts.cast(pa.string()).cast(pa.float64()),
    }
    connection = duckdb.connect()
    connection.register("t", pa.table({"a": amounts}))
    casts["duckdb"] = pa.array([row[0] for row in connection.sql("SELECT a::DOUBLE FROM t").fetchall()])
    for name, column in casts.items():
        others = [(d, f) for d, f, n in zip(decimals, column.to_pylist(), nearest, strict=True) if f != n]
        print(f"{scale} digits, {name}: {len(others) / len(decimals):.1%}", "such as", others[0] if others else "-")
        if name == "cast":
            assert len(others) / len(decimals) > least, "this has changed: all were the nearest"
        else:
            assert not others
PY
venv/bin/python look.py
