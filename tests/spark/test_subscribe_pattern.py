"""Patterns that the source takes find the same topics as in Spark's own connector, and match the same names as in Java:
their own answers, for random patterns.
"""

import itertools
import random
import re

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from spark_kafka_eos.options.java_regex import to_python

pytestmark = [pytest.mark.spark, pytest.mark.broker]

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
    "b_a",
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


@pytest.fixture(scope="module")
def taken():
    """Random patterns that are not refused, with their translation."""
    rng = random.Random(20261123)
    taken = dict(translated(alternatives(rng) for _ in range(2_000)))
    assert len(taken) > 800
    return taken


@pytest.fixture(scope="module")
def topics(bootstrap):
    """One topic for each of NAMES, for as long as this module runs."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in NAMES]).values():
        created.result(30)
    yield
    for deleted in admin.delete_topics(NAMES).values():
        deleted.result(30)


def test_a_pattern_is_found_in_the_topics_in_which_sparks_connector_finds_it(spark, bootstrap, topics, taken):
    java = spark._jvm.java
    loader = java.lang.Thread.currentThread().getContextClassLoader()

    def array(kind, item):
        made = spark.sparkContext._gateway.new_array(kind, 1)
        made[0] = item
        return made

    properties = java.util.Properties()
    properties.put("bootstrap.servers", bootstrap)
    clients = loader.loadClass("org.apache.kafka.clients.admin.Admin")
    create = clients.getMethod("create", array(java.lang.Class, properties.getClass()))
    admin = create.invoke(None, array(java.lang.Object, properties))
    [strategy] = loader.loadClass("org.apache.spark.sql.kafka010.SubscribePatternStrategy").getConstructors()
    try:
        for pattern, python in itertools.islice(taken.items(), 200):
            selected = strategy.newInstance(array(java.lang.Object, pattern))
            partitions = selected.assignedTopicPartitions(admin).mkString(" ").split()
            found = {name for name in NAMES if f"{name}-0" in partitions}
            assert {name for name in NAMES if re.search(python, name)} == found, pattern
    finally:
        admin.close()


def test_a_pattern_matches_what_it_matches_in_java(spark, taken):
    java = spark._jvm.java  # each of its names is looked up in the JVM, so once
    compiled, remaining, names = java.util.regex.Pattern.compile, java.util.ArrayList, java.util.ArrayList(NAMES)
    for pattern, python in taken.items():
        others = remaining(names)
        others.removeIf(compiled(pattern).asMatchPredicate())  # one call for all names
        assert f"[{', '.join(name for name in NAMES if not re.fullmatch(python, name))}]" == others.toString(), pattern
