"""The live screen, driven by keys, with pictures instead of a cluster."""

from __future__ import annotations

import asyncio
import runpy
from dataclasses import replace

import pytest
from textual.widgets import Static

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.tools.cli.top_rows import MOST_ROWS, Picture, chosen, transaction_rows
from spark_kafka_eos.tools.cli.top_screen import Details, RowTable, Top
from spark_kafka_eos.tools.operators.survey import Survey
from tests.pages import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs" / "pictures" / "top.py"))
PICTURE: Picture = SCRIPT["cluster"]()
NOW = PICTURE.survey.taken_ms / 1e3


class Stage:
    """The screen, with what it is to see next; `clock` is set by hand."""

    def __init__(self, seen=PICTURE):
        self.seen, self.clock, self.looks = seen, NOW, 0
        self.app = Top(self._look, seconds=3_600, clock=lambda: self.clock)

    def _look(self):
        self.looks += 1
        if isinstance(self.seen, Exception):
            raise self.seen
        return self.seen

    def play(self, act):
        """Run `act(self)`, a coroutine, in the app."""

        async def run():
            async with self.app.run_test(size=(110, 30)) as self.pilot:
                await self.settled()
                await act(self)

        asyncio.run(run())

    async def settled(self):
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys):
        await self.pilot.press(*keys)
        await self.settled()

    async def look(self, seen):
        self.seen = seen
        self.app.look_again()
        await self.settled()

    def table(self, name):
        return self.app.query_one(f"#{name}", RowTable)

    def column(self, table, at=0):
        shown = self.table(table)
        return [str(shown.get_row_at(row)[at]) for row in range(shown.row_count)]

    @property
    def status(self):
        return str(self.app.query_one("#status", Static).content)


def test_the_oldest_transaction_the_worst_partition_and_the_latest_query_come_first():
    async def act(stage):
        assert stage.column("transactions") == ["nightly-import", "payments", "orders-copy"]
        assert stage.column("partitions") == ["clicks-7", "orders-0", "orders-3", "orders-copy-1"]
        assert stage.column("queries") == ["orders-copy", "clicks-hourly"]
        assert stage.table("transactions").border_title == "Open transactions: 3"
        assert stage.status == "as of 08:00:00 UTC · every 3600 s"

    Stage().play(act)


def test_keys_sort_the_table_that_has_the_focus_and_turn_it():
    async def act(stage):
        await stage.press("s")  # by time left: the prepared one has none
        assert stage.column("transactions") == ["nightly-import", "orders-copy", "payments"]
        await stage.press("r")
        assert stage.column("transactions") == ["orders-copy", "nightly-import", "payments"]
        assert stage.column("partitions")[0] == "clicks-7"
        await stage.press("tab", "r")
        assert stage.column("partitions")[0] == "orders-copy-1"

    Stage().play(act)


def test_a_filter_narrows_all_tables_until_it_is_emptied():
    async def act(stage):
        await stage.press("slash", *"NIGHT", "enter")
        assert [stage.column(name) for name in ("transactions", "partitions", "queries")] == [
            ["nightly-import"],
            ["orders-0", "orders-3"],
            [],
        ]
        assert stage.table("transactions").border_title == "Open transactions: 1 of 3"
        assert "filter: NIGHT" in stage.status
        await stage.press("slash", *["backspace"] * 5, "enter")
        assert len(stage.column("transactions")) == 3

    Stage().play(act)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["enter"], "unknown: Kafka does not store it"),
        (["tab", "d"], "kafka-eos transactions abort --topic clicks --partition 7 --start-offset 5000"),
        (["tab", "tab", "d"], "5017 of query 8c1f09aa"),
    ],
)
def test_a_row_is_described_and_left_again(keys, said):
    async def act(stage):
        await stage.press(*keys)
        assert isinstance(stage.app.screen, Details)
        lines = "".join(strip.text for strip in stage.app.screen._compositor.render_strips())
        assert said.replace(" ", "") in lines.replace(" ", "")
        await stage.press("escape")
        assert not isinstance(stage.app.screen, Details)

    Stage().play(act)


def test_the_last_picture_stays_while_nobody_answers_and_the_screen_says_since_when():
    async def act(stage):
        stage.clock = NOW + 2
        await stage.look(BrokerUnreachable("cannot connect to any broker"))
        stage.clock = NOW + 9
        await stage.look(BrokerUnreachable("cannot connect to any broker"))
        assert stage.status.startswith("no answer since 08:00:02 UTC: cannot connect to any broker · as of 08:00:00")
        assert stage.column("transactions") == ["nightly-import", "payments", "orders-copy"]
        later = replace(PICTURE, survey=replace(PICTURE.survey, taken_ms=PICTURE.survey.taken_ms + 20_000))
        await stage.look(later)
        assert stage.status.startswith("as of 08:00:20 UTC")

    Stage().play(act)


def test_what_is_missing_in_a_picture_is_said():
    survey = replace(
        PICTURE.survey, silent={2: "no connection"}, unavailable=dict.fromkeys(PICTURE.survey.log_ends, "no leader")
    )

    async def act(stage):
        assert stage.status.endswith("broker 2 does not answer · 4 partitions cannot be read · see --topic")

    Stage(replace(PICTURE, survey=survey, remarks=("see --topic",))).play(act)


def test_looks_pause_and_their_interval_doubles_and_halves():
    async def act(stage):
        await stage.press("minus", "minus")
        assert "every 900 s" in stage.status
        await stage.press("plus", "plus", "plus")
        assert "every 3600 s" in stage.status, "an hour is the longest"
        looked = stage.looks
        await stage.press("space")
        await stage.look(PICTURE)
        assert (stage.looks, "paused" in stage.status) == (looked, True)
        await stage.press("space")
        await stage.look(PICTURE)
        assert stage.looks == looked + 1

    Stage().play(act)


def test_the_cursor_stays_on_its_row_when_the_order_changes():
    async def act(stage):
        await stage.press("down")
        assert stage.table("transactions").row_key == "payments"
        await stage.press("r")
        await stage.look(PICTURE)
        assert stage.table("transactions").row_key == "payments"

    Stage().play(act)


def test_no_more_rows_are_shown_than_people_can_read():
    one = PICTURE.survey.open_transactions[0]
    many = {f"id-{n}": replace(one, transactional_id=f"id-{n}") for n in range(MOST_ROWS + 5)}

    async def act(stage):
        table = stage.table("transactions")
        assert (table.row_count, table.border_title) == (MOST_ROWS, "Open transactions: 205, the first 200 shown")

    Stage(Picture(survey=Survey(taken_ms=0, transactions=many))).play(act)


def test_what_is_unknown_comes_last_in_both_directions():
    rows = transaction_rows(PICTURE)
    for reverse in (False, True):
        assert chosen(rows, text="", column=5, reverse=reverse)[-1].key == "payments"


def test_the_picture_of_the_documentation_is_what_the_screen_shows():
    taken = asyncio.run(SCRIPT["take"]())
    assert taken == SCRIPT["PICTURE"].read_text(), "run: python docs/pictures/top.py"
