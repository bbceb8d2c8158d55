"""Property files, as the JVM of the tests' Spark reads them."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from spark_kafka_eos.options.properties import _entries

pytestmark = pytest.mark.spark

SYNTAX = [
    "\\",
    "\\",
    "\\",
    "\n",
    "\r",
    "\r\n",
    "=",
    ":",
    "#",
    "!",
    " ",
    "\t",
    "\f",
    "a",
    "b",
    "key",
    "\\u00e4",
    "\\u",
    "D83D",
]
SYNTAX += ["\\uD83D\\uDE00", "t", "n", "\x00", "\x0b", "\x1c", "\x85", "\xa0", "\xfc", "7"]
ENDS_IN_A_JOINT = re.compile(rb"(^|[\r\n])[ \t\f]*\\[\r\n]*$")
BEYOND_ISO = ["\u2028", "\u2029", "\ufeff", "€", "😀", "１"]


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> Callable[[bytes, str], dict[str, str] | None]:
    """What java.util.Properties reads of bytes in this encoding, None if it refuses them."""
    jvm: Any = spark._jvm
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    ascii_only = jvm.com.fasterxml.jackson.core.JsonGenerator.Feature.ESCAPE_NON_ASCII
    mapper.getFactory().enable(ascii_only)  # a surrogate alone does not get through otherwise

    def load(content: bytes, encoding: str) -> dict[str, str] | None:
        properties, stream = jvm.java.util.Properties(), jvm.java.io.ByteArrayInputStream(content)
        try:
            properties.load(stream if encoding == "iso-8859-1" else jvm.java.io.InputStreamReader(stream, encoding))
        except IllegalArgumentException:  # Malformed \\uxxxx encoding
            return None
        read: dict[str, str] = json.loads(mapper.writeValueAsString(properties))
        return read

    return load


def ours(content: bytes) -> dict[str, str] | None:
    try:
        return {name: value for _, name, value in _entries(content)}
    except ValueError:
        return None


def has_half_a_character(entries: dict[str, str] | None) -> bool:
    return entries is not None and any(
        "\ud800" <= letter <= "\udfff" for pair in entries.items() for text in pair for letter in text
    )


def is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-8"])
def test_a_property_file_is_read_as_java_reads_it(java, encoding: str) -> None:
    rng = random.Random(20261127)
    parts = SYNTAX if encoding == "iso-8859-1" else SYNTAX + BEYOND_ISO
    compared = refused = 0
    for _ in range(5_000):
        content = "".join(rng.choices(parts, k=rng.randrange(1, 16))).encode(encoding)
        if encoding == "iso-8859-1" and is_utf_8(content) and not content.isascii():
            continue  # read as UTF-8, which the page says
        if content.startswith("\ufeff".encode()):
            continue  # Java takes the mark for a part of the first name
        if ENDS_IN_A_JOINT.search(content):
            continue  # of which Java makes an entry without a name and a value, unless the line ends with CR LF
        wanted = java(content, encoding)
        assert ours(content) == (None if has_half_a_character(wanted) else wanted), content
        compared, refused = compared + 1, refused + (wanted is None)
    assert compared > 4_000
    assert refused > 100


def test_every_file_in_conf_is_read_as_java_reads_it(java) -> None:
    files = sorted((Path(__file__).parents[2] / "conf").glob("*.properties"))
    assert len(files) > 5
    for path in files:
        assert ours(path.read_bytes()) == java(path.read_bytes(), "utf-8"), path.name
