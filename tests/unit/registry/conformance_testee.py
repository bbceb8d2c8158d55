"""The program that Protobuf's conformance runner starts and asks. What it answers was found out before, of all requests
together, by another process.

  conformance_testee.py note FILE     note each request in the file; the answer is an empty message
  conformance_testee.py answer FILE   answer each request with what follows it in the file, skip others

A request is 4 bytes with its length, the lowest first, and a ConformanceRequest; a response is the same. So are the
parts of the file.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

_LENGTH = struct.Struct("<I")
# Messages of the type ConformanceResponse: the field's number and type, the length, the value.
_EMPTY = b"\x1a\0"  # protobuf_payload
_SKIPPED = b"\x2a\x09not noted"


def pieces(source: BinaryIO) -> Iterator[bytes]:
    while length := source.read(_LENGTH.size):
        yield source.read(*_LENGTH.unpack(length))


def joined(parts: Iterable[bytes]) -> bytes:
    return b"".join(_LENGTH.pack(len(part)) + part for part in parts)


def _serve(answer: Callable[[bytes], bytes]) -> None:
    for request in pieces(sys.stdin.buffer):
        sys.stdout.buffer.write(joined([answer(request)]))
        sys.stdout.buffer.flush()


def _answer(path: Path) -> None:
    with path.open("rb") as file:
        known = list(pieces(file))
    answers = dict(zip(known[::2], known[1::2], strict=True))
    _serve(lambda request: answers.get(request, _SKIPPED))


def _note(path: Path) -> None:
    with path.open("wb") as file:

        def note(request: bytes) -> bytes:
            file.write(joined([request]))
            file.flush()  # the runner may kill this process at its end
            return _EMPTY

        _serve(note)


if __name__ == "__main__":
    {"note": _note, "answer": _answer}[sys.argv[1]](Path(sys.argv[2]))
