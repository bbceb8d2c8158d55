"""Every program and command of the pages is run by a test or says why not; and they may run on one broker, in any
order: none meets another one's topics or transactional IDs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.pages import EXAMPLES, PAGES, ROOT, RUN_BY, blocks, python_blocks

_NAME = re.compile(r"""(?:kafka\.transactional\.id|topic|subscribe)"?\s*[=:]\s*"([^"]+)\"""")
_NOT_UNDER_THESE_NAMES = {"pipelines.md", "deploying.md"}  # the one is run with other names, the other starts no query


def test_no_two_pages_use_the_same_topic_or_transactional_id():
    pages = defaultdict(set)
    for page in PAGES:
        if page.name not in _NOT_UNDER_THESE_NAMES:
            for name in _NAME.findall("".join(python_blocks(page))):
                pages[name].add(page.name)
    assert {"orders", "payments", "bookings"} <= pages.keys()
    assert {name: found for name, found in pages.items() if len(found) > 1} == {}


SHOWN = {"text", "diff", "properties", "yaml"}  # nothing to run
BLOCKS = [block for page in PAGES for block in blocks(page)]
NOTE = re.compile(r"run by (?P<test>[\w/.]+\.(?:py|sh))\b|not run: (?P<why>\w+ .+)")


def test_every_block_of_the_pages_says_what_it_is():
    fences = sum(page.read_text().count("```") for page in PAGES)
    assert 2 * len(BLOCKS) == fences, "a fence is not closed, or a block is not seen here"
    assert {block.language for block in BLOCKS} == SHOWN | {"sh", "python", "py"}


@pytest.mark.parametrize("block", [each for each in BLOCKS if each.note], ids=str)
def test_a_block_that_is_not_run_with_the_others_names_its_test_or_the_reason(block):
    note = NOTE.match(block.note)
    assert note is not None, block.note
    if note["test"] is not None:
        assert (ROOT / note["test"]).is_file()
    for named in re.findall(r"tests/[\w/]+(?:\.py)?", block.note):
        assert (ROOT / named).exists(), named


def test_a_part_of_a_program_has_a_note():
    assert [str(block) for block in BLOCKS if block.language == "py" and not block.note] == []


def test_every_program_is_run():
    pages = {block.page for block in BLOCKS if block.language == "python" and not block.note}
    assert pages == EXAMPLES.keys() | RUN_BY.keys()
    for page, test in RUN_BY.items():
        assert Path(page).name in (ROOT / test).read_text(), test


def test_a_block_without_a_note_is_seen():
    page = ROOT / "docs" / "security.md"
    unmarked = [block for block in blocks(page) if block.language == "sh" and not block.note]
    assert [block.text.split()[:2] for block in unmarked] == [["kafka-eos", "preflight"]]
