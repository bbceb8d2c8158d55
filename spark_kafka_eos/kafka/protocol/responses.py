"""Decodes responses with kafka-python's classes, and validates them.

That library's decoders are fast but do not validate: they raise any kind of error, accept null where Kafka's schema
does not allow it, and decode varints of any length, in time quadratic to it.

Nor are they made for several threads, and one driver may run several queries. A decoder is compiled when it is first
used, and while it is, its class has other contents. A class for one version (`MetadataResponse[12]`) is made on demand,
and enters a registry with a weak reference: if two threads make it, one is dropped, and if that was the registered one,
each later look-up raises ReferenceError. So only one thread decodes at a time, and the registry and such classes are
not used.
"""

from __future__ import annotations

import functools
import re
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_kafka_eos.kafka.errors import BrokerUnreachable
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.codes import ErrorCode
from spark_kafka_eos.kafka.words import first_three

# Only a varint can have so many bytes with the highest bit set; the longest valid one has ten bytes, and text contains
# some ASCII character, such as a space, earlier. Without the look-behind, the search would begin anew at each byte of
# a run that is too short.
_ENDLESS = re.compile(rb"(?<![\x80-\xff])[\x80-\xff]{1000}")
_NO_ERROR = (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
_Checked = tuple[Any, str, bool]  # a field, its name, and whether it may be null
_NEVER_NULL = ("int8", "int16", "uint16", "int32", "int64", "float64", "bool", "uuid", "bitfield")


_decoding = threading.Lock()


def class_of_response(request: Any) -> Any:
    """kafka-python has it in the module of the request's class."""
    return getattr(sys.modules[type(request).__module__], f"{request.name.removesuffix('Request')}Response")


def decode(message_class: Any, version: int, frame: Any) -> Any:
    """The request or response in `frame`, with its header, as kafka-python decodes it: by one thread at a time."""
    with _decoding:
        return message_class.decode(frame, version=version, header=True)


def decode_response(response_class: Any, version: int, frame: memoryview) -> Any:
    """The response in `frame`, which starts with the correlation id. Raises ValueError if it is malformed in any
    way.
    """
    _refuse_endless_varints(frame)
    try:
        response = decode(response_class, version, frame)
    except (struct.error, LookupError, TypeError, AttributeError, AssertionError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__} {error}".rstrip()) from error
    _refuse_nulls(response_class.fields, response, response.version)
    return response


def incomplete(
    api: str, asked: Iterable[TopicPartition | str], answered: Iterable[TopicPartition | str]
) -> BrokerUnreachable | None:
    """The error for a response that does not match the request exactly: it is ignored, and the request is retried.

    Nothing follows from a missing entry: a partition that is missing may still have an offset.
    """
    expected, actual = set(asked), set(answered)
    if expected == actual:
        return None
    missing, others = (first_three(sorted(map(str, names))) for names in (expected - actual, actual - expected))
    problems = [f"does not contain {missing}"] if missing else []
    problems += [f"contains {others}, which was not requested"] if others else []
    return BrokerUnreachable(f"a broker's response to {api} {' and '.join(problems)}")


def error_of(response: Any) -> int:
    """The first error code in a response, 0 if there is none or if it is not one of kafka-python's.

    OPERATION_NOT_ATTEMPTED does not count: it only says that there is another error.
    """
    response_class: Any = type(response)
    return next((code for code in _codes(response, _error_paths(response_class)) if code not in _NO_ERROR), 0)


def _codes(value: Any, paths: Iterable[tuple[str, ...]]) -> Iterator[int]:
    for name, *inner in paths:
        content = getattr(value, name)
        if not inner:
            yield content or 0
        elif content is not None:
            for item in content if isinstance(content, list) else (content,):
                yield from _codes(item, [tuple(inner)])


@functools.cache
def _error_paths(response_class: Any) -> tuple[tuple[str, ...], ...]:
    """The names that lead to each error code of a response, outer ones first."""
    return tuple(_paths(getattr(response_class, "fields", {})))


def _paths(fields: Any) -> Iterator[tuple[str, ...]]:
    for name, field in fields.items():
        if name.endswith("error_code"):
            yield (name,)
        elif field.is_struct() or field.is_struct_array():
            yield from ((name, *inner) for inner in _paths(field.fields))


def _refuse_endless_varints(frame: memoryview) -> None:
    if _ENDLESS.search(frame):
        raise ValueError("a number is too long")


def _refuse_nulls(
    fields: Mapping[str, Any], value: Any, version: int, cache: dict[int, list[_Checked]] | None = None
) -> None:
    """`cache` has what to check of each structure: one response may have thousands of the same."""
    cache = {} if cache is None else cache
    if (checks := cache.get(id(fields))) is None:
        checks = cache[id(fields)] = [check for field in fields.values() for check in _checks(field, version)]
    for field, name, may_be_null in checks:
        content = getattr(value, name)
        if content is None:
            if not may_be_null:
                raise ValueError(f"{name} is null")
        elif field.is_struct_array():
            for item in content:
                _refuse_nulls(field.fields, item, version, cache)
        elif field.is_struct():
            _refuse_nulls(field.fields, content, version, cache)
        elif field.is_array() and None in content:
            raise ValueError(f"{name} contains null")


def _checks(field: Any, version: int) -> Iterator[_Checked]:
    """What to check of a field: nothing if it is a number, tagged, or not of this version."""
    if field.type_str not in _NEVER_NULL and field.for_version_q(version) and not field.tagged_field_q(version):
        yield field, field.name, field.nullable_for_version_q(version)
