"""docs/migrating.md says of every option of the built-in source what becomes of it; the page is held to the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_kafka_eos.options import source_options
from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.table import BOTH, OPTIONS, SOURCE
from tests.built_in import SOURCE_OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "migrating.md"
ROWS = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)


def test_the_page_names_every_option_of_the_built_in_source_once():
    named = [name for name, _, _ in ROWS]
    assert len(named) == len(set(named))
    of_theirs = {name for name, here, _ in ROWS if not name.startswith("kafka.") and here != "new"}
    assert of_theirs == set(SOURCE_OPTIONS)


@pytest.mark.parametrize(("name", "here", "why"), ROWS)
def test_what_the_page_says_of_an_option_is_what_becomes_of_it(name, here, why):
    taken = {row.name for row in OPTIONS if row.side in (SOURCE, BOTH)}
    match here:
        case "same" | "more" | "differs":
            assert name in taken
        case "new":
            assert name in taken
            assert name not in SOURCE_OPTIONS
        case "no effect":
            assert name in WITHOUT_EFFECT
        case "refused":
            assert name in REFUSED
        case other:
            pytest.fail(f"the page says {other!r}")
    assert why or here == "same"


def test_a_query_without_options_of_its_own_reads_committed_as_the_page_says():
    options = source_options({"kafka.bootstrap.servers": "broker:9092", "subscribe": "t"})
    assert options.isolation_level == "read_committed"
    assert options.group_id is None
