"""How dead letters are shown: tables that fit, nothing of a record unless it is asked for, and no escape sequences."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.tools.cli import dead_letters
from spark_kafka_eos.tools.cli.dead_letters import counts, listing, parts, plan_json, said, tally, to_json
from spark_kafka_eos.tools.cli.errors import confirmed
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.replay.plan import Stream
from spark_kafka_eos.tools.replay.send import ReplayPlan
from spark_kafka_eos.tools.replay.stored import StoredLetter


def stored(value=b"secret", *, key=None, cause="undecodable", timestamp=1_700_000_000_000, **letter):
    where = {"topic": "orders", "partition": 3, "offset": 123_456_789, "message": "2 bytes are left over"}
    return StoredLetter(
        partition=TopicPartition("dead", 0),
        offset=5,
        timestamp=timestamp,
        letter=DeadLetter(cause=cause, **{**where, **letter}),
        key=key,
        value=value,
        headers=(),
    )


def shown(renderable, width=80):
    console = Console(width=width)
    with console.capture() as captured:
        console.print(renderable)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    assert all(line[-1] in "┓┩│┘┤" for line in lines if line[:1] in "┏┡│└├"), "nothing is cut off at the right"
    return captured.get()


def test_a_dead_letter_has_a_row_without_its_content():
    text = shown(listing([stored(key=b"customer")], 1, values=False), 200)
    for part in ("undecodable", "orders-3@123456789", "2023-11-14 22:13:20", "14 B", "2 bytes are left over"):
        assert part in text
    assert "secret" not in text and "customer" not in text
    assert "key" not in to_json(stored(), values=False)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"order", "order"), (b"\x00\xff", "0x00ff"), (b"\x1b[2J", "0x1b5b324a"), (None, "null"), (b"", "empty"),
     (b"x" * 300, "x" * 200 + "…")],
)  # fmt: skip
def test_content_is_shown_as_text_or_in_hexadecimal_if_it_is_asked_for(content, text):
    assert f"value: {text}" in shown(listing([stored(content)], 1, values=True), 1_000)


def test_what_anybody_wrote_into_the_headers_cannot_control_the_terminal():
    evil = stored(message="a\x1b[2Jb", cause="c\x07", topic="t\x9b", output_topic="o\x1b", query_id="q\x1b")
    text = shown(listing([evil], 1, values=False)) + shown(counts(tally(iter([evil]))))
    assert not any(character in text for character in "\x1b\x07\x9b")


def test_eighty_columns_cut_nothing():
    topic = "orders.of.every.country.and.every.year.since.the.beginning"
    text = shown(listing([stored(topic=topic, message="m" * 100)], 30, values=False))
    assert "…" not in text and "Dead letters: 30, shown: the newest 1." in text
    counted = shown(counts(tally(iter([stored(topic=topic, query_id="0f" * 16, cause="unknown-schema")]))))
    assert "…" not in counted
    assert "2023-11-14" in counted


def test_they_are_counted_by_cause_topic_and_query_the_most_frequent_first():
    rows = tally(iter([stored(), stored(cause="other", timestamp=5), stored(b"", cause="other", timestamp=3)]))
    assert [(row.cause, row.records, row.bytes, row.first, row.last) for row in rows] == [
        ("other", 2, 6, 3, 5), ("undecodable", 1, 6, 1_700_000_000_000, 1_700_000_000_000)
    ]  # fmt: skip


def test_what_is_left_is_said_with_how_often_it_came_back():
    left = ReplayPlan(query_id="q", ends={}, parts=(), left={(Stream("undecodable", 2), "replayed"): 3})
    assert "undecodable" in shown(parts(left)) and "2 times" in shown(parts(left))
    assert said(left, sent=0) == (
        "Dead letters sent back: 0. Left, because they came back each time: 3. A larger --max-replays sends them again."
    )


def test_what_is_left_because_nobody_signed_it_is_said_apart():
    left = ReplayPlan(query_id="q", ends={}, parts=(), left={(Stream("undecodable", 0), "unsigned"): 3})
    assert said(left, sent=0).startswith(
        "Dead letters sent back: 0. Left, because they are not signed with ledgerKey: 3."
    )


def test_what_is_left_for_want_of_a_key_is_said_apart():
    left = ReplayPlan(query_id="q", ends={}, parts=(), left={(Stream("undecodable", 0, signed=True), "other key"): 3})
    assert said(left, sent=0) == (
        "Dead letters sent back: 0. Left, because a replay with another ledgerKey may have sent them: 3. "
        "Give that key, too: --option ledgerKey=NEW,OLD."
    )


def test_what_an_earlier_version_may_have_sent_is_said_apart():
    left = ReplayPlan(query_id="q", ends={}, parts=(), left={(Stream("undecodable", 1), "earlier version"): 3})
    assert said(left, sent=0) == (
        "Dead letters sent back: 0. Left, because a replay of an earlier version may have sent them: 3. Look at them."
    )


def test_what_is_said_is_what_was_sent_and_not_what_was_planned():
    part = cast("Any", SimpleNamespace(positions=[1, 2, 3], stream=Stream("undecodable", 0), targets={"in": 3}))
    planned = ReplayPlan(query_id="q", ends={}, parts=(part,), left={})
    assert said(planned, sent=None) == "Dead letters that would be sent back: 3."
    assert said(planned, sent=3) == "Dead letters sent back: 3."
    assert said(planned, sent=1) == "Dead letters sent back: 1. Not sent again, because the ledger has them: 2."
    shown = [plan_json(planned, sent=each) for each in (None, 3, 1, 0)]
    assert [(each["sent"], each["records"]) for each in shown] == [(False, 3), (True, 3), (True, 1), (False, 0)]


@pytest.mark.parametrize("command", ["show", "count", "replay"])
def test_brokers_that_are_missing_are_a_usage_error_that_names_the_flag(command):
    ended = CliRunner().invoke(app, ["dead-letters", command, "dead"])
    assert ended.exit_code == 2
    assert "--bootstrap-servers (option kafka.bootstrap.servers): is required." in ended.stderr


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 3), ("", 3)], ids=["yes", "no", "no terminal"])
def test_a_replay_that_nobody_confirms_is_not_taken_for_one_that_left_some(monkeypatch, answer, code):
    planned = ReplayPlan(
        query_id="q", ends={}, parts=(cast("Any", SimpleNamespace(positions=[1], targets=())),), left={}
    )
    ran: list[ReplayPlan] = []

    def run(*_: object) -> int:
        ran.append(planned)
        return planned.records

    monkeypatch.setattr(dead_letters, "Cluster", lambda _: nullcontext())
    monkeypatch.setattr(dead_letters, "ranges_of", lambda *_: [])
    monkeypatch.setattr(dead_letters, "plan", lambda *_, **__: planned)
    monkeypatch.setattr(dead_letters, "parts", lambda _: "")
    monkeypatch.setattr(dead_letters, "require_named", lambda *_: None)
    monkeypatch.setattr(dead_letters, "run", run)
    done = CliRunner().invoke(app, ["dead-letters", "replay", "dead", "--bootstrap-servers", "b:1"], input=answer)
    assert (done.exit_code, len(ran)) == (code, code == 0), done.output
    assert ("Nothing was sent." in done.stderr) == (code == 3)


def test_ctrl_c_at_a_question_is_ctrl_c(monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules[typer.confirm.__module__], "visible_prompt_func", interrupted)
    with pytest.raises(typer.Exit) as ended:
        confirmed("Really?")
    assert ended.value.exit_code == 130
