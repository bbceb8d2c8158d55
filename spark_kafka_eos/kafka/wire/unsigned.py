"""One variable-length number at a time, without numpy; `wire.varint` has columns of them.

Groups of seven bits, lowest first; bit 7 of a byte says that another byte follows. Source: Kafka protocol guide, types
UNSIGNED_VARINT, VARINT and VARLONG.
"""

from __future__ import annotations


def write_unsigned(number: int) -> bytes:
    """The bytes of a number that is not negative."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def read_unsigned(data: memoryview, at: int, most_bytes: int) -> tuple[int, int]:
    """The number at `at`, and the position after it. Raises IndexError if `data` ends within it, ValueError if it takes
    more than `most_bytes`.
    """
    number = 0
    for shift in range(0, 7 * most_bytes, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError(f"a number has more than {most_bytes} bytes")
