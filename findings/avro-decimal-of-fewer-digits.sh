#!/usr/bin/env bash
# avro 1.12.2 (Python): a decimal with fewer digits after the point than the scale is written as another number.
#
# Guess (confidence 85 %): a decimal that the schema can hold reads back as an equal one, whoever writes and reads it.
# Seen: of a decimal's sign, digits and exponent, avro writes sign and digits, and compares the exponent with the scale
# only to refuse too many digits. With scale 2, 1.5 becomes 0.15 and Decimal("100").normalize(), which is 1E+2, becomes
# 0.01, without an error, for bytes and for fixed alike. fastavro 1.13.1 brings the number to the scale first, as Avro's
# Java library does with BigDecimal.
# So amounts are off by powers of ten for whoever writes decimals with it that come of arithmetic or of text as they
# are: Decimal("2.50") is right and Decimal("2.5"), which is equal, is not. No reader can tell.
#
# Needs Python 3.11. Installs avro 1.12.2 and fastavro 1.13.1 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check avro==1.12.2 fastavro==1.13.1
cat > look.py <<'PY'
import io, json
from decimal import Decimal
import avro.io, avro.schema, fastavro

DECIMAL = {"logicalType": "decimal", "precision": 10, "scale": 2}
SCHEMAS = {"bytes": {"type": "bytes"} | DECIMAL, "fixed": {"type": "fixed", "name": "F", "size": 5} | DECIMAL}


def by_avro(schema, value):
    to = io.BytesIO()
    avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(value, avro.io.BinaryEncoder(to))
    return to.getvalue()


def by_fastavro(schema, value):
    to = io.BytesIO()
    fastavro.schemaless_writer(to, schema, value)
    return to.getvalue()


print("avro 1.12.2, fastavro 1.13.1; a decimal, the number that each of them writes with scale 2")
became = {}
for kind, schema in SCHEMAS.items():
    for value in (Decimal("2.50"), Decimal("1.5"), Decimal("-7"), Decimal("100").normalize()):
        fast = fastavro.schemaless_reader(io.BytesIO(by_fastavro(schema, value)), schema)
        became[kind, str(value)] = fastavro.schemaless_reader(io.BytesIO(by_avro(schema, value)), schema)
        print(kind, value, "avro:", became[kind, str(value)], "fastavro:", fast)
        assert fast == value
    assert became[kind, "2.50"] == Decimal("2.50")
    wrong = {"1.5": "0.15", "-7": "-0.07", "1E+2": "0.01"}
    for value, other in wrong.items():
        assert became[kind, value] == Decimal(other), f"this has changed: it was {other}"
PY
venv/bin/python look.py
