"""The page on tables has each refusal, in the words of the code."""

from __future__ import annotations

import inspect
import re

import pytest

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.participants import refusal
from spark_kafka_eos.participants.sql import CREATE
from spark_kafka_eos.participants.token import Token, UnreadableToken
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "tables.md").read_text()
TOKEN = Token(
    identity=ProducerIdentity(transactional_id="id", producer_id=1, epoch=2),
    query_id="query",
    batch_id=3,
    digest="d",
    serial=4,
    records=5,
    bytes=6,
    cluster="there",
)
GIVEN = {
    "token": TOKEN,
    "entry": LedgerEntry(query_id="query", batch_id=4, digest="d", table=9),
    "batch": MicroBatch(query_id="query", batch_id=5, digest="e"),
    "version": 7,
    "records": 8,
    "cluster": "here",
}
FUNCTIONS = [
    found for _, found in inspect.getmembers(refusal, inspect.isfunction) if found.__module__ == refusal.__name__
]


def refused(function):
    names = inspect.signature(function).parameters
    given = {name: GIVEN[name] for name in names}
    return function(**given | ({"token": UnreadableToken(reason="?")} if function is refusal.unreadable else {}))


SECTION = PAGE.split("## Refused")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| ((?:the|batch) .+?) \| .+ \| .+ \|$", SECTION, re.MULTILINE)[1:]  # after the head


def patterns() -> list[re.Pattern[str]]:
    """Each row's message, of which `…` stands for anything."""
    return [re.compile(".+".join(map(re.escape, row.split("…")))) for row in ROWS]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_each_refusal_has_its_row(function):
    reason = refused(function).reason
    assert len([pattern for pattern in patterns() if pattern.match(reason)]) == 1, reason


def test_there_is_no_other_row():
    assert len(ROWS) == len(FUNCTIONS)


def test_the_page_shows_the_statement_that_creates_the_table_of_tokens():
    assert CREATE.replace("IF NOT EXISTS ", "") in PAGE
