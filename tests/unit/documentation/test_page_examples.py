"""The pages' examples may run on one broker, in any order: none meets another one's topics or transactional IDs."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.pages import PAGES, python_blocks

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
