"""The page on incidents names for each a test that exists, or says that there is none; and each tracker once."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.pages import ROOT

PAGE = (ROOT / "docs/incidents.md").read_text()
_SECTIONS = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
INCIDENTS = {section.partition("\n")[0]: section.partition("\n## ")[0] for section in _SECTIONS}
NO_TEST = "**Shown by** no test yet."
_TRACKER = r"(?!KIP-)[A-Z]+-\d+|[\w-]+/[\w-]+#\d+"
_LINK = re.compile(rf"\[({_TRACKER})\]\((https://[^)\s]+)\)")


def shown_by(incident: str) -> list[tuple[str, str]]:
    """The file and the function of each test that an incident names."""
    return re.findall(r"`([\w/]+\.py)::(\w+)`", INCIDENTS[incident])


def test_the_page_has_incidents_that_can_happen_and_that_cannot():
    assert len(INCIDENTS) > 25
    assert re.findall(r"^## (.+)$", PAGE, re.MULTILINE) == [
        "Cannot happen here",
        "A part can happen here",
        "Can happen here",
    ]


@pytest.mark.parametrize("incident", INCIDENTS)
def test_an_incident_says_what_happened_what_would_happen_here_and_what_shows_it(incident):
    parts = re.findall(r"^\*\*(Happened\.|Here\.|Shown by)\*\*", INCIDENTS[incident], re.MULTILINE)
    assert parts == ["Happened.", "Here.", "Shown by"]
    assert bool(shown_by(incident)) != (NO_TEST in INCIDENTS[incident])
    assert "](https://" in INCIDENTS[incident], "no source"


def test_only_what_can_happen_may_lack_a_test():
    impossible = PAGE.partition("\n## A part can happen here")[0]
    assert NO_TEST not in impossible


def test_each_tracker_is_named_once_as_a_link_to_it():
    trackers = _LINK.findall(PAGE)
    assert len(trackers) > 40
    for name in (0, 1):
        assert [each for each, times in Counter(link[name] for link in trackers).items() if times > 1] == []
    for name, address in trackers:
        project, _, number = name.rpartition("#")
        assert address in (
            f"https://issues.apache.org/jira/browse/{name}",
            f"https://github.com/{project}/issues/{number}",
            f"https://github.com/{project}/pull/{number}",
        )
    rest = re.sub(r"\[[^]]*\]\([^)]*\)", "", PAGE)
    assert re.findall(rf"\b(?:{_TRACKER})\b", rest) == []
