"""What a writer's value is in the query's schema, if either has a logical type: the same quantity, or nothing.

Avro resolves the types beneath and ignores what they stand for, so a time in milliseconds would be read as one in
microseconds, and a decimal with another scale as another number. Here each pair has one answer:

- Without a logical type on one side, the number, text or bytes are what the other side says: nothing contradicts it,
  unless the `connect.name` of one gives another unit.
- Of times of one family, the writer's unit is a multiple of that of the query's column. Else digits would be lost.
- Of decimals, the query's scale is at least the writer's. Values with too many digits are out of range one by one.
- All others are equal, or refused: no time zone, no date and no text is made up.

Source: Apache Avro specification 1.12, "Logical Types"; Spark refuses a decimal's lower scale, too (SPARK-49095).
"""

from __future__ import annotations

from spark_kafka_eos.registry.avro_schema import Fixed, Primitive, say
from spark_kafka_eos.registry.connect_types import MICRO_DURATION, NANO_DURATION, NANO_TIME, YEAR

_DAY = 86_400_000_000_000
_MICROSECOND = 1_000
_INSTANT, _LOCAL, _OF_DAY = "a point in time", "a date or a time without a zone", "a time of day"
_DURATION, _YEARS = "a duration", "a year"
# Family, and unit in nanoseconds. A date is its midnight, as where Delta and Spark widen it.
_TIMES = {
    "date": (_LOCAL, _DAY),
    "time-millis": (_OF_DAY, 1_000_000),
    "time-micros": (_OF_DAY, _MICROSECOND),
    "timestamp-millis": (_INSTANT, 1_000_000),
    "timestamp-micros": (_INSTANT, _MICROSECOND),
    "timestamp-nanos": (_INSTANT, 1),
    "local-timestamp-millis": (_LOCAL, 1_000_000),
    "local-timestamp-micros": (_LOCAL, _MICROSECOND),
    "local-timestamp-nanos": (_LOCAL, 1),
    NANO_TIME: (_OF_DAY, 1),
    MICRO_DURATION: (_DURATION, _MICROSECOND),
    NANO_DURATION: (_DURATION, 1),
    YEAR: (_YEARS, 365 * _DAY),
}
_IN_MICROSECONDS = {f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros")}


class Contradiction(ValueError):
    """The two types do not stand for the same quantity. The text names both, and the way out."""


def factor(writer: Primitive, reader: Primitive) -> int:
    """By what the writer's int or long is multiplied to be the number of `reader`'s column. Raises Contradiction."""
    if not (writer.logical and reader.logical) and len({*_units(writer), *_units(reader)}) > 1:
        raise Contradiction(
            f"{_cannot(writer, reader)}: by its connect.name, one of them has another unit. With connect_types=True it "
            "is read as that"
        )
    if reader.logical not in _TIMES:
        return 1
    column = _MICROSECOND if reader.logical in _IN_MICROSECONDS else _TIMES[reader.logical][1]
    family, unit = _TIMES[writer.logical or reader.logical]
    if family != _TIMES[reader.logical][0]:
        raise Contradiction(f"{_cannot(writer, reader)}: it is {family}. {_NUMBER}")
    if unit % column:
        raise Contradiction(f"{_cannot(writer, reader)}: digits would be lost. {_NUMBER}")
    return unit // column


def _units(side: Primitive) -> set[int]:
    meaning = side.logical or side.of_connect
    return {_TIMES[meaning][1]} if meaning in _TIMES else set()


def shift(writer: Primitive | Fixed, reader: Primitive | Fixed) -> int:
    """How many zeros the writer's bytes, text or fixed get behind their number if they are a decimal to `reader`, else
    0. Raises Contradiction.
    """
    if writer.logical == reader.logical == "decimal":
        if reader.scale < writer.scale:
            raise Contradiction(
                f"{_cannot(writer, reader)}: digits would be lost. A schema of the query with a scale of at least "
                f"{writer.scale} reads it"
            )
        return reader.scale - writer.scale
    text = {"string", "uuid"}
    sides = {side.logical or side.name if isinstance(side, Primitive) else side.logical for side in (writer, reader)}
    both = writer.logical and reader.logical and writer.logical != reader.logical
    if both or (sides & text and sides & {"decimal", "big-decimal"}):
        raise Contradiction(f"{_cannot(writer, reader)}. A schema of the query with the writer's type reads it")
    return 0


_NUMBER = "A schema of the query with the writer's type reads it, and one without a logical type the number itself"


def _cannot(writer: Primitive | Fixed, reader: Primitive | Fixed) -> str:
    return f"{say(writer)} cannot be read as {say(reader)}"
