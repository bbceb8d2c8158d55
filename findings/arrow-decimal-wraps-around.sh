#!/usr/bin/env bash
# pyarrow 26.0.1: a number that does not fit into a decimal with more digits after the point becomes another number.
#
# Guess (confidence 90 %): a cast to a decimal that cannot hold the number raises ArrowInvalid, as `safe=True` says.
# Seen: 12345678901 as decimal(38, 30) needs 41 digits. Arrow multiplies it by 10^30 in 128 bits, which wrap around, and
# only then counts the digits of what is left: it is 95513691.8462…, and no error. So it is with a cast of a decimal and
# of a text, and where a column of CSV or JSON is read as such a decimal. Of the whole numbers of 11 digits, three in ten
# become another number, the others raise. By way of decimal256 all raise; so do casts of int64 and of a double.
# So a column of amounts may be wrong here and there after a cast to a wider type, with Spark's largest precision.
#
# Needs Python 3.11. Installs pyarrow 26.0.1 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1
cat > look.py <<'PY'
import io
import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.json

print("pyarrow 26.0.1: 12345678901 as decimal(38, 30)")
NUMBER, WANTED = "12345678901", pa.decimal128(38, 30)
explicit = pa.schema([("a", WANTED)])
ways = {
    "cast of decimal(11, 0)": lambda: pa.array([Decimal(NUMBER)], pa.decimal128(11, 0)).cast(WANTED),
    "cast of text": lambda: pa.array([NUMBER]).cast(WANTED),
    "CSV": lambda: pa.csv.read_csv(
        io.BytesIO(f"a\n{NUMBER}\n".encode()), convert_options=pa.csv.ConvertOptions(column_types={"a": WANTED})
    )["a"],
    "JSON": lambda: pa.json.read_json(
        io.BytesIO(f'{{"a": "{NUMBER}"}}'.encode()), parse_options=pa.json.ParseOptions(explicit_schema=explicit)
    )["a"],
}
for name, way in ways.items():
    (found,) = way().to_pylist()
    print(f"{name}: {found}")
    assert found == Decimal("95513691.846215315318514132456344387584"), "this has changed"

for name, way in {
    "by way of decimal256": lambda: pa.array([NUMBER]).cast(pa.decimal256(76, 30)).cast(WANTED),
    "cast of int64": lambda: pa.array([int(NUMBER)]).cast(WANTED),
    "cast of double": lambda: pa.array([float(NUMBER)]).cast(WANTED),
}.items():
    try:
        way()
    except pa.ArrowInvalid as error:
        print(f"{name}: ArrowInvalid: {str(error)[:60]}")
    else:
        raise AssertionError(f"this has changed: {name}")

random.seed(1)
numbers, others = 20_000, 0
for _ in range(numbers):
    number = random.randrange(10**10, 10**11)
    try:
        (found,) = pa.array([Decimal(number)], pa.decimal128(11, 0)).cast(WANTED).to_pylist()
    except pa.ArrowInvalid:
        continue
    others += found != number
print(f"of {numbers:,} whole numbers of 11 digits, {others / numbers:.0%} become another number without an error")
assert others / numbers > 0.2, "this has changed"
PY
venv/bin/python look.py
