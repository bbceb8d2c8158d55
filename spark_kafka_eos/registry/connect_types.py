"""What the names of types of Kafka Connect and Debezium stand for, as logical types of Avro.

Connect's schemas have a few types and, for what values mean, a name. Its converters keep the name: in Avro as
`connect.name`, in JSON as `name`.

| name | logical type here |
|---|---|
| org.apache.kafka.connect.data.Decimal, Date, Time, Timestamp | decimal, date, time-millis, timestamp-millis |
| io.debezium.time.Date | date |
| io.debezium.time.Timestamp, MicroTimestamp, NanoTimestamp | local-timestamp-millis, -micros, -nanos |
| io.debezium.time.Time, MicroTime | time-millis, time-micros |
| io.debezium.time.NanoTime, MicroDuration, NanoDuration, Year | their names: a number whose unit counts if it changes |
| io.debezium.time.ZonedTimestamp | its name: a text that is a timestamp |
| io.debezium.data.Uuid | uuid |
| io.debezium.data.VariableScaleDecimal | its name: a record that is a number, in Spark its digits as text |

All other names (Interval, Enum, EnumSet, Json, Xml, Bits, geometry.*, …) stand for what Connect's type has anyway:
Spark has no type that says more without a loss.

Source: Kafka Connect, `org.apache.kafka.connect.data`; Debezium, "Data type mappings" of its connectors, whose
timestamps without a zone are counted as if they were in UTC.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data", "io.debezium.time", "io.debezium.data"
DECIMAL: Final = f"{_CONNECT}.Decimal"
NANO_TIME: Final = f"{_TIME}.NanoTime"
MICRO_DURATION: Final = f"{_TIME}.MicroDuration"
NANO_DURATION: Final = f"{_TIME}.NanoDuration"
YEAR: Final = f"{_TIME}.Year"
ZONED: Final = f"{_TIME}.ZonedTimestamp"
VARIABLE_SCALE: Final = f"{_DATA}.VariableScaleDecimal"
TIMESTAMP: Final = pa.timestamp("us", "UTC")
_MOST_DIGITS = 131_072  # of PostgreSQL, on either side of the point: a scale of an int could ask for gigabytes

# By Avro's type and the name: a name of another type than its own says nothing.
_LOGICAL = {
    ("int", f"{_CONNECT}.Date"): "date",
    ("int", f"{_CONNECT}.Time"): "time-millis",
    ("long", f"{_CONNECT}.Timestamp"): "timestamp-millis",
    ("int", f"{_TIME}.Date"): "date",
    ("int", f"{_TIME}.Time"): "time-millis",
    ("long", f"{_TIME}.MicroTime"): "time-micros",
    ("long", f"{_TIME}.Timestamp"): "local-timestamp-millis",
    ("long", f"{_TIME}.MicroTimestamp"): "local-timestamp-micros",
    ("long", f"{_TIME}.NanoTimestamp"): "local-timestamp-nanos",
    ("long", NANO_TIME): NANO_TIME,
    ("long", MICRO_DURATION): MICRO_DURATION,
    ("long", NANO_DURATION): NANO_DURATION,
    ("int", YEAR): YEAR,
    ("string", ZONED): ZONED,
    ("string", f"{_DATA}.Uuid"): "uuid",
    ("record", VARIABLE_SCALE): VARIABLE_SCALE,
}


def logical_type(avro: str, name: object) -> str:
    """What a value of Avro's type `avro` and Connect's type `name` is; "" if the name says nothing more."""
    return _LOGICAL.get((avro, name), "") if isinstance(name, str) else ""


def with_logical_type(tree: dict[str, Any]) -> dict[str, Any]:
    """Avro's JSON of a type with the logical type that its `connect.name` stands for, if it has none."""
    kind = tree.get("type")
    logical = logical_type(kind, tree.get("connect.name")) if isinstance(kind, str) else ""
    return tree | {"logicalType": logical} if logical and "logicalType" not in tree else tree


def zoned_timestamps(texts: pa.StringArray) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Times of ISO 8601 with a zone as TIMESTAMP, and which of them it cannot hold: those with parts of a microsecond,
    outside of the years 1 to 9999, or malformed.
    """
    try:
        return texts.cast(TIMESTAMP), np.zeros(len(texts), np.bool_)
    except pa.ArrowInvalid:
        parts = [_zoned_timestamp(text) for text in texts]
        return pa.concat_arrays(parts), np.array([not part[0].is_valid for part in parts])


def _zoned_timestamp(text: pa.StringScalar) -> pa.Array:
    try:
        return pa.array([text.as_py()], pa.string()).cast(TIMESTAMP)
    except pa.ArrowInvalid:
        return pa.nulls(1, TIMESTAMP)


def digits(unscaled: bytes, scale: int) -> str | None:
    """The number as text, without exponent; None if it has more digits than any database."""
    if abs(scale) > _MOST_DIGITS or len(unscaled) > _MOST_DIGITS:
        return None
    number = int.from_bytes(unscaled, "big", signed=True)
    text = str(Decimal(abs(number)))  # Python refuses to write integers of many digits
    if scale <= 0:
        text += "0" * -scale if number else ""
    else:
        text = text.rjust(scale + 1, "0")
        text = f"{text[:-scale]}.{text[-scale:]}"
    return f"-{text}" if number < 0 else text
