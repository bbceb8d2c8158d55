"""Java's regular expressions match the same topic names in Python, or are refused."""

import re

import pytest

from spark_kafka_eos.options.java_regex import to_python

NAMES = (
    "orders",
    "ORDERS",
    "Orders",
    "orders-1",
    "orders.eu",
    "orders_2",
    "o",
    "a",
    "b",
    "ab",
    "aab",
    "-",
    "_",
    "7",
    "a]",
)


def matched(pattern):
    translated = to_python(pattern)
    return [name for name in NAMES if re.fullmatch(translated, name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders.*", ["orders", "orders-1", "orders.eu", "orders_2"]),
        ("orders|o", ["orders", "o"]),
        ("order", []),  # a part of a name is no match
        (r"^orders$", ["orders"]),
        (r"\Aorders\z", ["orders"]),
        (r"orders\Z", ["orders"]),
        (r"\Qorders.\Eeu", ["orders.eu"]),
        (r"\Qorders.eu", ["orders.eu"]),
        (r"orders\Q.\E\w+", ["orders.eu"]),
        (r"\p{Alpha}+", ["orders", "ORDERS", "Orders", "o", "a", "b", "ab", "aab"]),
        (r"\p{Lu}+", ["ORDERS"]),
        (r"\P{Alpha}", ["-", "_", "7"]),
        (r"\pN", ["7"]),
        (r"orders\p{Punct}.+", ["orders-1", "orders.eu", "orders_2"]),
        (r"orders\h*", ["orders"]),
        (r"orders\H.*", ["orders-1", "orders.eu", "orders_2"]),
        (r"[a-z&&[^aeiou]]", ["b"]),
        (r"[a-d[x-z]]+", ["a", "b", "ab", "aab"]),
        (r"[\w&&\D&&[^_]]", ["o", "a", "b"]),
        (r"[^\w]", ["-"]),
        (r"a*+b", ["b", "ab", "aab"]),
        (r"a*+ab", []),
        (r"(?>a*)ab", []),
        (r"(?i)orders", ["orders", "ORDERS", "Orders"]),
        (r"o(?i)rders", ["orders"]),
        (r"O(?i)rders|A", ["ORDERS", "Orders", "a"]),
        (r"(?:O(?i)r)ders", ["Orders"]),
        (r"(?i)o(?-i)rders", ["orders", "Orders"]),
        (r"(?i:O)rders", ["orders", "Orders"]),
        (r"(?i)[^O]rders", []),
        (r"(?ims)ORDERS", ["orders", "ORDERS", "Orders"]),
        (r"(?i)orderſ", []),
        (r"(?<kind>a)b", ["ab"]),
        (r"\x61\u0062", ["ab"]),
        (r"\x{61}\0142", ["ab"]),
        (r"[\-_]", ["-", "_"]),
        (r"[]a]", ["a"]),
        (r"a]", ["a]"]),
        (r"(?!orders).*-.*|-", ["-"]),
        (r"orders(?<=s).eu", ["orders.eu"]),
    ],
)
def test_a_pattern_matches_what_it_matches_in_java(pattern, names):
    assert matched(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"(a)\1", r"the back-reference \\1"),
        (r"(?<n>a)\k<n>", r"the back-reference \\k"),
        (r"\Ga", r"\\G"),
        (r"\X", r"\\X"),
        (r"\N{LATIN SMALL LETTER A}", r"\\N"),
        (r"a\E", r"\\E"),
        (r"\b{g}", r"\{ without a number"),
        (r"(?x) a", r"the flag \(\?x\)"),
        (r"(?iu)a", r"the flag \(\?u\)"),
        (r"(?U:a)", r"the flag \(\?U\)"),
        (r"(?P<n>a)", r"\(\?P, which is not Java's"),
        (r"(?#note)a", r"\(\?#, which is not Java's"),
        (r"\p{IsGreek}", r"\\p\{IsGreek\}, a property"),
        (r"(?i)\p{Lower}", r"depends on the release of Java"),
        (r"[a&&]", "contains && with an operand"),
        (r"[a-z&&[b]c&&d]", "contains && with an operand"),
        (r"(?<=a+)b", "look-behind"),
        ("a**", "not valid"),
        ("*a", r"nothing to repeat before \*"),
        ("a{,2}", r"\{ without a number"),
        ("a{b", r"\{ without a number"),
        ("(a", r"\( without \)"),
        ("a)", r"unmatched \)"),
        ("[a", r"\[a without \]"),
        ("[z-a]", "the range z-a is empty"),
        ("a\\", r"contains \\"),
        (r"\x{110000}", "not a character"),
        (r"a{4294967296}", "not valid"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(pattern, construct):
    with pytest.raises(ValueError, match=construct):
        to_python(pattern)
