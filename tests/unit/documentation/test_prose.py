"""Plain English: phrases that stop a reader, in the pages and in the texts that the code shows."""

from __future__ import annotations

import re

import pytest

from tests.pages import PAGES, ROOT
from tests.unit.documentation.strings import templates

BANNED = {
    r"(?<!there )\bis no (?!longer\b|more than\b|other\b)": "is not a …",
    r"\bbelongs? into\b": "belongs in, is an option of its own",
    r"\bto be had\b": "available, obtained",
    r"\bis not said\b": "… is missing",
    r"\b(at (most|least|the)|about|until|by|to) so (many|much)\b": "maximum number of …, approximately …",
    r"\bso (many|much) (bytes|offsets|records|tasks)\b": "maximum number of …, approximately …",
    r"\byet to (start|be|come)\b": "before it starts, not yet …",
    r"\bonce more of\b": "again",
    r"\bis asked once more\b": "… again",
    r"\bwhat is not,? and why\b": "what is different",
    r"\b(right|directly|begins?|began|starts?|started|stands?|appended|comes?) behind\b": "after, later than",
    r"\bfor want of\b": "because … is missing",
    r"\breckon(s|ed)?\b": "estimate",
    r"\bon account of\b": "because of",
    r"\bbring(s)? along\b": "include",
    r"\bof use\b": "useful",
    r"\bgo(es)? by the\b": "follow, use",
    r"\b(tell|say)s? nothing of\b": "does not report",
    r"\bone likes\b": "you like",
}
PHRASES = [(re.compile(phrase, re.IGNORECASE), better) for phrase, better in BANNED.items()]


def found_in(text: str) -> list[str]:
    """What is wrong with a text, and what to write instead."""
    words = " ".join(text.split())
    return [f"{match[0]!r}: better {better!r}" for phrase, better in PHRASES for match in phrase.finditer(words)]


def wide_lines(text: str) -> list[str]:
    """The lines of prose wider than 120 columns that could be broken; not tables, code, HTML and pictures."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.lstrip().startswith(("|", "<", "!"))]
    return [
        line for line in lines if len(line) > 120 and len(line.split()) > 2
    ]  # a mark and an address stay as they are


# docs/options.md is made from the code's texts
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "options.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_a_page_is_in_plain_english(page):
    assert found_in(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_at_most_120_columns_wide(page):
    assert wide_lines(page.read_text()) == []


def test_a_wide_line_of_prose_is_noticed_and_one_of_code_or_of_a_table_is_not():
    wide = "word " * 25
    assert wide_lines(f"{wide}\n```python\n{wide}\n```\n| {wide}\n- [{'a' * 120}](b)") == [wide]


def test_the_codes_texts_are_in_plain_english():
    shown = [(path.relative_to(ROOT), line, wrong) for path, line, text in templates() if (wrong := found_in(text))]
    assert shown == []


@pytest.mark.parametrize(
    "text",
    [
        "'8q' is no size such as 64m or 1g",
        "it holds a password, which belongs into an option of its own",
        "where tokens are to be had",
        "At most so many offsets",
        "what was appended\nbehind it",
        "a query that is yet to start",
    ],
)
def test_a_phrase_that_stops_a_reader_is_noticed(text):
    assert found_in(text)


@pytest.mark.parametrize("text", ["there is no such option", "it is no longer open", "one batch behind", "so many"])
def test_plain_english_is_left_alone(text):
    assert found_in(text) == []
