#!/usr/bin/env bash
# fastavro 1.13.1: in a union, a time is written as its date alone, and a whole number as a float that is not equal.
#
# Guess (confidence 85 %): a value that a branch of a union can hold reads back as an equal one, whichever branch comes
# first. Of float and double, fastavro takes the double for that reason, wherever it stands.
# Seen: of all others, the first branch counts that takes the value's Python type. A datetime is a date in Python, so
# for ["null", date, timestamp-micros] its time of day is dropped, and so it is for ["null", date, "string"], which has
# no branch for it. An int may be a float, so for ["null", "float", "long"] 16777217 becomes 16777216.0, and with double
# a number of 16 digits may change its last one. No error, and no reader can tell. avro 1.12.2 (Python) takes the last
# such branch, so there it is ["null", "long", "float"] that loses; a datetime before a date fails with a TypeError.
# confluent-kafka's AvroSerializer writes with fastavro, so this is what Python's producers write to topics with a
# schema registry.
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
from datetime import UTC, date, datetime
import avro.io, avro.schema, fastavro

DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "long", "logicalType": "timestamp-micros"}
NAMES = {"date": DATE, "timestamp-micros": TIME}
NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


def union(*names):
    return ["null", *(NAMES.get(name, name) for name in names)]


def read(schema, body):
    return fastavro.schemaless_reader(io.BytesIO(body), schema)


def by_fastavro(schema, value):
    to = io.BytesIO()
    fastavro.schemaless_writer(to, schema, value)
    return read(schema, to.getvalue())


def by_avro(schema, value):
    to = io.BytesIO()
    try:
        avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(value, avro.io.BinaryEncoder(to))
    except Exception as error:
        return type(error).__name__
    return read(schema, to.getvalue())


print("fastavro 1.13.1, avro 1.12.2; a union, a value, and what each of them writes for it")
for names, value, expected in (
    (("timestamp-micros", "date"), NOON, NOON),
    (("date", "timestamp-micros"), NOON, date(2026, 11, 29)),
    (("date", "string"), NOON, date(2026, 11, 29)),
    (("long", "float"), 16_777_217, 16_777_217),
    (("float", "long"), 16_777_217, 16_777_216.0),
    (("double", "long"), 9_007_199_254_740_993, 9_007_199_254_740_992.0),
    (("float", "double"), 0.1, 0.1),
):
    fast, other = by_fastavro(union(*names), value), by_avro(union(*names), value)
    print(names, value, "fastavro:", fast, "avro:", other)
    assert (type(fast), fast) == (type(expected), expected), f"this has changed: it was {expected}"
    assert names != ("long", "float") or other == 16_777_216.0, "this has changed: avro wrote a float"
PY
venv/bin/python look.py
