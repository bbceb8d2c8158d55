"""What docs/migrating.md says of both connectors is what the cases of the peer's suites show (tests/spark/peer)."""

from __future__ import annotations

import re
from collections import Counter
from fnmatch import fnmatch

import pytest

from tests.pages import ROOT
from tests.spark import test_peer
from tests.spark.peer.case import CASES

PAGE = (ROOT / "docs" / "migrating.md").read_text()
SECTIONS = {text.partition("\n")[0]: " ".join(text.split()) for text in re.split(r"^#+ ", PAGE, flags=re.MULTILINE)}
ROWS = re.findall(r"^\| (.+?) \| (?:the )?same \|", PAGE, re.MULTILINE)
SAME = sorted({name for row in ROWS for name in re.findall(r"`([\w.*]+)`", row)})
DOCUMENTED = [case for case in CASES if case.documented is not None]


@pytest.mark.parametrize("name", SAME)
def test_an_option_that_the_page_calls_the_same_has_a_case_that_shows_it(name):
    assert test_peer.MODULES
    assert [
        case.sentence
        for case in CASES
        if case.documented is None and any(fnmatch(option, name) for option in case.options)
    ]


@pytest.mark.parametrize("case", DOCUMENTED, ids=lambda case: case.sentence)
def test_a_case_that_differs_quotes_the_section_that_says_so(case):
    assert case.documented.words in SECTIONS[case.documented.section]


def test_a_case_has_a_sentence_of_its_own():
    assert [sentence for sentence, count in Counter(case.sentence for case in CASES).items() if count > 1] == []


def test_twenty_cases_run_each_time():
    assert len([case for case in CASES if case.in_every_run]) == 20
