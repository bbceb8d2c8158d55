"""Samples the header `traceparent` (W3C Trace Context) of the rows that a task encodes: a batch's span links to it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_ROWS = 32  # of each Arrow batch that are looked at


class Traceparents:
    """Up to `limit` different values, of the first rows of each Arrow batch."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: dict[str, None] = {}

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(self._values)

    def add(self, rows: pa.RecordBatch) -> None:
        """Look at rows with the sink's columns."""
        if len(self._values) >= self._limit or "headers" not in rows.schema.names:
            return
        for headers in rows.column("headers").slice(0, _ROWS).to_pylist():
            for header in headers or ():
                if header and header["key"] == "traceparent" and _TRACEPARENT.fullmatch(header["value"] or b""):
                    self._values[header["value"].decode()] = None
                    if len(self._values) == self._limit:
                        return
