"""From a response's bytes to kafka-python's object of it, with nothing taken on trust.

That library's decoders are fast and gullible: they raise whatever comes up, leave a null where Kafka's schema has none,
and follow a varint for as long as its bytes go on, in time that grows with the square of their number.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from typing import Any

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.model import TopicPartition

# The highest bit goes on and on in a varint only; the longest one has ten bytes, and text without one ASCII character
# (a space, say) ends sooner.
_ENDLESS = re.compile(rb"[\x80-\xff]{1000}")
_NEVER_NULL = ("int8", "int16", "uint16", "int32", "int64", "float64", "bool", "uuid", "bitfield")


def decode_response(response_class: Any, frame: memoryview) -> Any:
    """The response in `frame`, correlation id first. ValueError for bytes that are none, whatever is wrong with
    them."""
    _refuse_endless_varints(frame)
    try:
        response = response_class.decode(frame, header=True)
    except (struct.error, LookupError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__} {error}".rstrip()) from error
    _refuse_nulls(response_class._struct, response, response.version)  # noqa: SLF001 - the schema, nowhere else to be had
    return response


def incomplete(
    api: str, asked: Iterable[TopicPartition | str], answered: Iterable[TopicPartition | str]
) -> BrokerUnreachable | None:
    """The error of a response that does not speak of exactly what was asked: as good as none, so it is asked again.

    Nothing may be concluded from silence: a partition left out is not one without an offset.
    """
    expected, found = set(asked), set(answered)
    if expected == found:
        return None
    missing, others = (", ".join(sorted(map(str, some))) for some in (expected - found, found - expected))
    said = [f"says nothing of {missing}"] if missing else []
    said += [f"speaks of {others}, which nobody asked for"] if others else []
    return BrokerUnreachable(f"a broker's answer to {api} {' and '.join(said)}")


def _refuse_endless_varints(frame: memoryview) -> None:
    if _ENDLESS.search(frame):
        raise ValueError("a number goes on for ever")


def _refuse_nulls(schema: Any, value: Any, version: int) -> None:
    for field in schema.untagged_fields(version):
        found = getattr(value, field.name)
        if found is None:
            if field.type_str not in _NEVER_NULL and not field.nullable_for_version_q(version):
                raise ValueError(f"{field.name} is null")
        elif field.is_struct_array():
            for each in found:
                _refuse_nulls(field, each, version)
        elif field.is_struct():
            _refuse_nulls(field, found, version)
        elif field.is_array() and None in found:
            raise ValueError(f"{field.name} holds a null")
