"""One word for each thing: the glossary has the terms of the code, and a class name has one meaning."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

PACKAGE = ROOT / "spark_kafka_eos"
GLOSSARY = ROOT / "docs/glossary.md"
TERMS = re.findall(r"^### (.+)$", GLOSSARY.read_text(), re.MULTILINE)

# Kafka's and Spark's own words, which the glossary need not explain.
KAFKAS_AND_SPARKS = """
    abort acks broker cluster column commit consumer coordinator fetch group leader offset partition producer record
    replica request response topic transaction
"""
# The packages whose classes are the design's nouns, and those of their classes that are no terms: plain English for
# steps, answers and helpers.
OF_THE_DESIGN = ("ledger", "transaction", "appending", "kafka/fetching", "kafka/producing", "reading")
PLAIN = """
    Answer Arrival ArrowFiles Ask Choice Counts Cursor Decide Diagnosis Estimate Event Files FindBounds LocalFiles
    Locate Lost OffsetPlanner Others Planned Receive Repeat Sample SendPlan SessionKind SizeEstimates Space State
    Step Tally Target TooLargeToTravel UnsafeFolder Wait
"""

# What the code, its texts and the pages do not say, and what they say instead.
NOT_USED = {
    "told": "says, reports, is passed, is distinguished",
    "strangers?": "other transactional ids",
    "rooms": "packages",
    "house": "package",
    "journal": "ledger",
    "transaction id": "transactional id, producer ID",
    "(micro|mini) ?batch|mini-batch": "micro-batch",
    "high water mark": "high watermark",
    "dlq|quarantined?": "dead letter, dead-letter topic",
    "task retr(y|ies)": "task attempt",
    "executors? mode": "appendMode=executors",
}
_CLASSES_OF_SPARK = re.compile(r"\bmicroBatch\w*", re.IGNORECASE)


def words_of(name: str) -> list[str]:
    """The words of a term or of a class's name."""
    return re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)


def stem(word: str) -> str:
    """What `append`, `appended` and `Appender` have in common."""
    return word[:4].lower()


def defined(path: Path) -> Iterator[str]:
    """The names of a file's classes and type aliases."""
    tree = ast.parse(path.read_text())
    yield from (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    targets = (node.targets[0] for node in tree.body if isinstance(node, ast.Assign))
    yield from (each.id for each in targets if isinstance(each, ast.Name) and re.match(r"_?[A-Z][a-z]", each.id))


@cache
def names() -> dict[str, list[str]]:
    """The package's classes and type aliases, each with the files that define it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in defined(path):
            found[name].append(str(path.relative_to(PACKAGE)))
    return found


@cache
def texts() -> dict[str, str]:
    """The pages and the code, by path."""
    code = chain.from_iterable((ROOT / folder).rglob("*.py") for folder in ("spark_kafka_eos", "lab", "jobs"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in (*PAGES, *sorted(code))}


def wrong_words(text: str) -> list[str]:
    """The words that are not used, and what to write instead."""
    plain = " ".join(_CLASSES_OF_SPARK.sub("", text).split())
    return [
        f"{match[0]!r}: better {better!r}"
        for word, better in NOT_USED.items()
        for match in re.finditer(rf"(?<![a-zA-Z])({word})(?![a-zA-Z])", plain, re.IGNORECASE)
    ]


def test_a_class_name_has_one_meaning():
    assert {name: files for name, files in names().items() if len(files) > 1} == {}


def test_the_glossary_has_each_term_once():
    assert sorted({term.lower() for term in TERMS}) == sorted(term.lower() for term in TERMS)


def test_the_terms_of_the_glossary_are_used():
    """In the code or on another page: `moved ledger` also as `MovedLedger`."""
    read = [text for path, text in texts().items() if path != str(GLOSSARY.relative_to(ROOT))]
    words = {word: re.findall(r"\w+", word) for term in TERMS for word in term.split(", ")}
    used = {word: re.compile(r"\W?".join(parts), re.IGNORECASE) for word, parts in words.items()}
    assert [word for word, pattern in used.items() if not any(map(pattern.search, read))] == []


def test_the_designs_classes_have_the_names_of_terms():
    terms = {stem(word) for word in chain(KAFKAS_AND_SPARKS.split(), *map(words_of, TERMS))}
    public = {
        name
        for name, files in names().items()
        if not name.startswith("_") and any(file.rpartition("/")[0] in OF_THE_DESIGN for file in files)
    }
    others = {name for name in public if not any(stem(word) in terms for word in words_of(name))}
    assert others - {*PLAIN.split()} == set(), "explain it in docs/glossary.md, or give it a term's name"
    assert {*PLAIN.split()} - public == set()


def test_neither_the_code_nor_a_page_has_a_word_that_is_not_used():
    assert {path: wrong for path, text in texts().items() if (wrong := wrong_words(text))} == {}


@pytest.mark.parametrize("text", ["it was told\nto end", "self._told", "the Journal", "a DLQ", "another micro batch"])
def test_a_word_that_is_not_used_is_noticed(text):
    assert wrong_words(text)


@pytest.mark.parametrize("text", ["MicroBatchExecution", "microBatchThread", "a micro-batch", "household", "no room"])
def test_a_term_is_left_alone(text):
    assert wrong_words(text) == []
