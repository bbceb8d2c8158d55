"""Patterns that the source takes match the same topic names as in Java: the JVM's own answers, for random patterns."""

import random
import re

import pytest

from spark_kafka_eos.options.java_regex import to_python

pytestmark = pytest.mark.spark

NAMES = [
    "a",
    "b",
    "A",
    "B",
    "ab",
    "Ab",
    "aab",
    "a.b",
    "a-b",
    "a_b",
    "abc",
    "0",
    "1",
    "12",
    "a1",
    "z",
    "Z",
    "-",
    ".a",
    "_",
]
ESCAPES = [
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\h", r"\H", r"\v", r"\V", r"\pL", r"\PL", r"\p{Lower}", r"\P{Upper}"),
    *(r"\p{Alpha}", r"\p{Punct}", r"\p{XDigit}", r"\p{Nd}", r"\p{IsAlphabetic}", r"\p{IsPd}", r"\p{javaLowerCase}"),
]
CHARACTERS = ["a", "b", "A", "z", "1", "-", "_", r"\.", r"\-", r"\x61", r"\0101", r"\Qa.b\E", r"\Q1\E", "ſ"]
RANGES = ["a-z", "A-Z", "0-9", "A-z", "+-z", "--."]
ANCHORS = [".", "^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z", r"\R"]
FLAGS = ["(?i)", "(?-i)", "(?im)", "(?s-i)"]
GROUPS = ["(", "(?:", "(?i:", "(?-i:", "(?>", "(?=", "(?!", "(?<=", "(?<!", "(?<n>"]
QUANTIFIERS = ["*", "+", "?", "*+", "++", "?+", "*?", "+?", "??", "{1}", "{2,}", "{1,2}", "{0,2}+", "{1,3}?"]


def character_class(rng, depth=0):
    def operand():
        kinds = [ESCAPES, CHARACTERS, RANGES, ["]", "^", "&", "$"]]
        nested = [character_class(rng, depth + 1)] if depth < 2 else ["a"]
        return "".join(rng.choice(rng.choice([*kinds, nested])) for _ in range(rng.randint(1, 3)))

    return f"[{rng.choice(['', '^'])}{'&&'.join(operand() for _ in range(rng.choice([1, 1, 2, 3])))}]"


def alternatives(rng, depth=0):
    return "|".join(sequence(rng, depth) for _ in range(rng.choice([1, 1, 2])))


def sequence(rng, depth):
    atoms = []
    for _ in range(rng.randint(1, 3)):
        group = [rng.choice(GROUPS) + alternatives(rng, depth + 1) + ")"] if depth < 2 else CHARACTERS
        atoms.append(rng.choice(rng.choice([CHARACTERS, ESCAPES, ANCHORS, FLAGS, [character_class(rng)], group])))
        atoms.append(rng.choice(QUANTIFIERS) if rng.random() < 0.3 else "")
    return "".join(atoms)


def translated(patterns):
    for pattern in patterns:
        try:
            yield pattern, to_python(pattern)
        except ValueError:
            continue  # refused: test_java_regex.py has these


def test_a_pattern_matches_what_it_matches_in_java(spark):
    rng = random.Random(20261123)
    taken = dict(translated(alternatives(rng) for _ in range(2_000)))
    assert len(taken) > 800
    for pattern, python in taken.items():
        java = spark._jvm.java.util.regex.Pattern.compile(pattern)
        assert [bool(re.fullmatch(python, name)) for name in NAMES] == [java.matcher(n).matches() for n in NAMES], (
            pattern
        )
