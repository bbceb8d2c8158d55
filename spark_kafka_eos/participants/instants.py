"""The rows of a DataFrame, with each timestamp as the instant that it is: a datetime in UTC.

PySpark makes of Spark's TIMESTAMP a datetime without a time zone, in that of the operating system. A database would
take it for a time of its own zone, and two instants of the hour that clocks repeat look the same. `fold` tells these
apart, so what comes from a classic session is exact. Spark Connect's client does not set it, and in the keys of a map
it does not count: they are equal without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_kafka_eos.errors import TableFailed

_Convert = Callable[[Any], Any]


def rows_of(frame: Any) -> Iterable[tuple[Any, ...]]:
    """The rows, read partition by partition. Raises TableFailed for a time of Spark Connect, or of a map's keys, that
    may be either of two instants, and for one before year 1 or after 9999 in UTC.
    """
    rows: Iterable[tuple[Any, ...]] = frame.toLocalIterator()
    convert = _converter(frame.schema, _in_utc if hasattr(frame, "_jdf") else _in_utc_if_unique)
    return rows if convert is None else map(convert, rows)


def _converter(kind: Any, instant: _Convert) -> _Convert | None:
    """What applies `instant` to the timestamps in values of this type of Spark; None if it has none."""
    convert = _of_type(kind, instant)
    return convert and (lambda value: None if value is None else convert(value))


def _of_type(kind: Any, instant: _Convert) -> _Convert | None:
    match kind.typeName():
        case "timestamp":
            return instant
        case "array":
            element = _converter(kind.elementType, instant)
            return element and (lambda values: [element(value) for value in values])
        case "map":
            key, value = _converter(kind.keyType, _in_utc_if_unique), _converter(kind.valueType, instant)
            if key is None and value is None:
                return None
            key, value = key or _same, value or _same
            return lambda entries: {key(name): value(entry) for name, entry in entries.items()}
        case "struct":
            fields = [_converter(field.dataType, instant) for field in kind.fields]
            if not any(fields):
                return None
            every = [field or _same for field in fields]
            return lambda row: _like(row, [field(value) for field, value in zip(every, row, strict=True)])
    return None


def _same(value: Any) -> Any:
    return value


def _like(row: Any, values: list[Any]) -> Any:
    """A Row with these values and the names of `row`, which are among its attributes."""
    new = tuple.__new__(type(row), values)
    vars(new).update(vars(row))
    return new


def _in_utc(local: datetime) -> datetime:
    try:
        return local.astimezone(UTC)
    except (ValueError, OverflowError):  # near the first and the last day, Python looks at days that it does not have
        days = timedelta(days=2 if local.year == 1 else -2)
    try:
        return (local + days).astimezone(UTC) - days
    except OverflowError:
        raise TableFailed(
            f"{local} in this process's time zone is out of the range of Python's datetime in UTC",
            action="Set TZ=UTC in the environment of the driver, or replace the value before.",
        ) from None


def _in_utc_if_unique(local: datetime) -> datetime:
    instant = _in_utc(local)
    if _in_utc(local.replace(fold=1 - local.fold)) != instant:
        raise TableFailed(
            f"{local} occurs twice in this process's time zone, where clocks are set back, and PySpark does not say "
            "which of the two is meant: over Spark Connect, and in the keys of a map",
            action="Set TZ=UTC in the environment of the driver, or of the Spark Connect server.",
        )
    return instant
