"""What anybody may have named reaches the operator's terminal without control characters."""

from __future__ import annotations

import ast
import asyncio
import io
from pathlib import Path

import pytest
from textual.widgets import Static

import spark_kafka_eos.tools.cli
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.words import printable
from spark_kafka_eos.tools.cli import terminal, top_screen, transaction_tables
from spark_kafka_eos.tools.cli.errors import show
from spark_kafka_eos.tools.cli.query_tables import description, list_table
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.cli.top_rows import Picture
from spark_kafka_eos.tools.operators.outputs import outputs
from spark_kafka_eos.tools.operators.status import QueryStatus
from spark_kafka_eos.tools.operators.survey import Survey

EVIL = "id\x1b[2K\x1b]52;c;cm0gLXJm\x07\x9b31m\u202eend"
SEEN = "id�[2K�]52;c;cm0gLXJm��31m�end"
FACTS = TransactionFacts(
    transactional_id=EVIL,
    coordinator=1,
    state="Ongoing",
    producer_id=1,
    epoch=0,
    timeout_ms=1_000,
    started_ms=0,
    described_ms=1_000,
    partitions=(TopicPartition("out", 0),),
)
SURVEY = Survey(taken_ms=1_000, transactions={EVIL: FACTS})
QUERY = QueryStatus(transactional_id=EVIL, ledger_topic="books", owner=FACTS)


def shown(*renderables):
    """What a terminal gets, without the colours that the commands choose."""
    said = io.StringIO()
    Console(file=said, width=120, highlight=False).print(*renderables)
    return said.getvalue()


@pytest.mark.parametrize(
    "view",
    [
        lambda: transaction_tables.listing(SURVEY, only_open=False),
        lambda: transaction_tables.description(SURVEY, FACTS),
        lambda: list_table([QUERY], 1_000),
        lambda: description(QUERY, 1_000),
        lambda: description(QUERY, 1_000, written=outputs([EVIL], Survey(taken_ms=1_000), {EVIL: f"no topic {EVIL}"})),
        lambda: f"id {EVIL[2:]}",  # not even as plain text
    ],
    ids=["transactions", "a transaction", "queries", "a query", "its outputs", "text"],
)
def test_no_escape_sequence_of_a_name_is_printed(view):
    said = shown(view())
    assert "�[2K�]52;c;cm0gLXJm" in said and "\x07" not in said
    assert all(character.isprintable() or character == "\n" for character in said)


def test_errors_are_printed_so_too(capsys):
    show(ToolFailed(f"no query with transactional.id {EVIL}"))
    said = capsys.readouterr().err
    assert "\x1b]" not in said and "\x9b" not in said and "�]52" in said.replace("\n", "")


def test_the_live_screen_shows_no_escape_sequence_either():
    picture = Picture(survey=SURVEY, queries=[QUERY], remarks=(f"no queries: {EVIL}",))
    app = top_screen.Top(lambda: picture, seconds=3_600, clock=lambda: 0.0)

    async def look():
        async with app.run_test(size=(160, 40)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            for name in ("transactions", "queries"):
                (id_cell, *_) = app.query_one(f"#{name}", top_screen.RowTable).get_row_at(0)
                assert str(id_cell) == SEEN
            assert SEEN in str(app.query_one("#status", Static).content)
            for name in ("transactions", "queries"):
                assert SEEN in shown(top_screen.describe(picture, name, EVIL))

    asyncio.run(look())


@pytest.mark.parametrize(("columns", "width"), [(None, 140), ("60", 60)])
def test_where_there_is_no_terminal_lines_are_as_long_as_a_log_takes_or_as_the_variable_says(
    monkeypatch, columns, width
):
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    assert Console(file=io.StringIO()).width == width


def test_a_table_measures_what_it_shows():
    assert Text(EVIL).cell_len == len(SEEN)
    assert printable("line\nline\t") == "line\nline�"


def test_the_commands_print_with_nothing_else():
    """Each way around it is a way for an escape sequence."""
    for file in Path(spark_kafka_eos.tools.cli.__file__).parent.glob("*.py"):
        if file == Path(terminal.__file__):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module in ("rich.text", "rich.console", "rich"):
                taken = {each.name for each in node.names} & {"Text", "Console", "print"}
                assert not taken, f"{file.name} imports {taken} from {node.module}"
