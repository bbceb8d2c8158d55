"""Every link of a page leads somewhere on GitHub, its anchor included, and every test that it names exists. The site's
own links are checked when it is built.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.pages import PAGES, ROOT

LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


TEST = re.compile(r"`(?:tests/)?([\w/]+\.py)::(\w+)")


@cache
def functions_of(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page):
    named = TEST.findall(page.read_text())
    assert page.name not in {"incidents.md", "kip-98.md", "security.md", "choosing.md"} or len(named) > 5
    assert [f"{file}::{test}" for file, test in named if test not in functions_of(ROOT / "tests" / file)] == []


def anchors(text: str) -> set[str]:
    """The ids that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading_of_this_project(page):
    broken = []
    for found in LINK.findall(FENCE.sub("", page.read_text())):
        link = found[0] or found[1]
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    assert broken == []


def test_a_heading_has_the_anchor_that_github_gives_it():
    text = '# From `format("kafka")`\n\n```sh\n# no heading\n```\n## Sink: `writeStream`, `write`\n'
    assert anchors(text) == {"from-formatkafka", "sink-writestream-write"}
