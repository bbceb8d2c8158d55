"""Dead letters on real brokers: they are shown and counted by cause, and sent back exactly once, also by a replay that
is killed.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import subprocess
import time

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.testing.driver import Kill
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.replay import send as replay
from spark_kafka_eos.tools.replay.plan import MOST, REPLAYS
from tests import held
from tests.letters import headers_of
from tests.producing import produce, transact
from tests.reading import read_committed
from tests.terminal import KAFKA_EOS

pytestmark = pytest.mark.broker

numbers = itertools.count(1)


class Aside:
    """A source of two partitions, and the dead letters of a query that reads it."""

    def __init__(self, kafka):
        number = next(numbers)
        self.kafka = kafka
        self.source = kafka.create_topic(f"letters-in-{number}", 2)
        self.dead = kafka.create_topic(f"letters-dead-{number}")
        self.others = []

    def put(self, value, cause=Cause.UNDECODABLE, *, headers=(), key=None, **letter):
        where = {"topic": self.source, "partition": 1, "offset": next(numbers), "query_id": "q"}
        error = headers_of(DeadLetter(cause=cause, **{**where, **letter}))
        produce(self.kafka.bootstrap, self.dead, [value], key=key, headers=[*headers, *error])

    def ask(self, command, *more):
        """The command's exit code and output."""
        given = ["dead-letters", command, self.dead, "--bootstrap-servers", self.kafka.bootstrap, *more]
        ended = CliRunner().invoke(app, given)
        return ended.exit_code, ended.output

    def refusal(self, *more):
        """What a replay says that cannot be done."""
        exit_code, shown = self.ask("replay", "--yes", *self.named(), *more)
        assert exit_code == 3, shown
        return " ".join(shown.split())

    def named(self):
        """The topics that dead letters may return to."""
        return [each for topic in (self.source, *self.others) for each in ("--destination", topic)]

    def json(self, command, *more):
        exit_code, shown = self.ask(command, "--json", *more)
        assert exit_code in (0, 1), shown
        return exit_code, json.loads(shown)

    def replay(self, *more):
        """The exit code, and what the JSON says was sent: by cause and earlier replays the number."""
        exit_code, shown = self.json("replay", "--yes", *self.named(), *more)
        return exit_code, {(part["cause"], part["replays"]): sum(part["to"].values()) for part in shown["parts"]}

    def returned(self, topic=None):
        """(partition, key, value, headers) of what is in the source, or in another topic."""
        found = read_committed(self.kafka.bootstrap, topic or self.source)
        return sorted((each.partition(), each.key(), each.value(), each.headers()) for each in found)


@pytest.fixture
def aside(either_kafka):
    return Aside(either_kafka)


def times(count):
    return (REPLAYS, str(count).encode())


def test_they_are_shown_without_their_content_and_counted_by_cause(aside):
    aside.put(b"\x01secret", Cause.NOT_FRAMED, key=b"k", message="The value\x1b[31m has no magic byte.", offset=41)
    aside.put(b"x" * 10, offset=42)
    aside.put(b"y", Cause.NOT_FRAMED, offset=43)
    produce(aside.kafka.bootstrap, aside.dead, [b"no dead letter"])
    transact(aside.kafka.bootstrap, aside.dead, [b"aborted"], "abort")

    exit_code, shown = aside.ask("show")
    assert exit_code == 0 and "Dead letters: 3." in shown
    assert "not-framed" in shown and "secret" not in shown and "\x1b" not in shown
    assert "\x1b" not in aside.ask("show", "--values")[1]
    assert [each["error"]["offset"] for each in aside.json("show", "--limit", "2")[1]] == [42, 43]
    (one,) = aside.json("show", "--cause", "undecodable", "--values")[1]
    assert (base64.b64decode(one["value"]), one["key"], one["size"]) == (b"x" * 10, None, 10)
    assert [each["error"]["cause"] for each in aside.json("show", "--since", "2026-01-01")[1]] != []
    assert aside.json("show", "--since", "2100-01-01")[1] == []

    rows = aside.json("count")[1]
    assert [(row["cause"], row["topic"], row["query_id"], row["records"], row["bytes"]) for row in rows] == [
        ("not-framed", aside.source, "q", 2, 9), ("undecodable", aside.source, "q", 1, 10)
    ]  # fmt: skip
    assert aside.ask("count")[1].endswith("Dead letters: 3.\n")


def test_they_return_to_where_they_came_from_or_could_not_go_each_once(aside):
    other = aside.kafka.create_topic(f"{aside.source}-out")
    aside.put(b"1", key=b"k", headers=[("trace", b"t")])
    aside.put(None, Cause.NOT_FRAMED, partition=0)
    aside.put(b"large", Cause.TOO_LARGE, output_topic=other)
    assert f"send them to '{other}', which was not named; nothing was sent" in aside.refusal()
    assert aside.returned() == aside.returned(other) == []
    aside.others.append(other)
    assert aside.ask("replay", "--dry-run")[1].endswith("Dead letters that would be sent back: 3.\n")
    assert aside.returned() == []
    assert aside.replay("--cause", "not-framed") == (0, {("not-framed", 0): 1})
    assert aside.replay() == (0, {("too-large", 0): 1, ("undecodable", 0): 1}), "not what another run has sent"
    assert aside.replay() == (0, {})
    assert aside.returned() == [(0, None, None, [times(1)]), (1, b"k", b"1", [("trace", b"t"), times(1)])]
    assert aside.returned(other) == [(0, None, b"large", [times(1)])]

    third = aside.kafka.create_topic(f"{aside.source}-repaired")
    aside.put(b"later")
    assert aside.replay("--to", third) == (0, {("undecodable", 0): 1})
    assert [value for _, _, value, _ in aside.returned(third)] == [b"later"]
    assert sum(aside.replay("--to", third, "--transactional-id", f"{aside.dead}.again")[1].values()) == 4


def test_what_returns_has_its_own_time_unless_its_topic_would_delete_it_for_that(aside):
    now = int(time.time() * 1e3)
    hour, days = now - 3_600_000, now - 8 * 86_400_000  # a topic keeps records for seven days, unless it says otherwise
    aside.put(b"an hour", timestamp=hour)
    aside.put(b"eight days", timestamp=days)
    aside.replay()
    times = {each.value(): each.timestamp()[1] for each in read_committed(aside.kafka.bootstrap, aside.source)}
    assert times[b"an hour"] == hour
    assert times[b"eight days"] >= now


def test_a_record_that_comes_back_each_time_is_left_and_can_still_be_sent(aside):
    aside.put(b"hopeless", headers=[times(2)])
    aside.put(b"once", headers=[times(1)])
    exit_code, shown = aside.json("replay", "--yes", *aside.named())
    assert (exit_code, shown["records"]) == (1, 1)
    assert shown["left"] == [{"cause": "undecodable", "replays": 2, "signed": False, "records": 1}]
    assert aside.replay("--max-replays", "3") == (0, {("undecodable", 2): 1})
    assert [(value, headers) for _, _, value, headers in aside.returned()] == [
        (b"hopeless", [times(3)]), (b"once", [times(2)])
    ]  # fmt: skip


def test_numbers_in_headers_make_few_ledgers_to_look_up(aside, monkeypatch):
    """Each number was a ledger of its own, and each ledger a look at the whole topic."""
    looked = []
    monkeypatch.setattr(replay, "last_entry", lambda *given, **more: looked.append(given[2]))
    for number in range(3, 203):
        aside.put(b"1", headers=[times(number)])
    aside.put(b"2")
    exit_code, shown = aside.json("replay", "--dry-run")
    assert looked == [], "none of them was ever replayed"
    assert (exit_code, shown["records"]) == (1, 1)
    assert sum(each["records"] for each in shown["left"]) == 200 and len(shown["left"]) == MOST - 2
    monkeypatch.undo()
    assert aside.replay("--max-replays", str(MOST + 1))[0] == 0
    assert len(aside.returned()) == 201
    assert aside.replay("--max-replays", str(MOST + 1)) == (0, {}), "each once"


def test_nothing_is_sent_if_a_record_would_go_nowhere_or_round_in_a_circle(aside):
    aside.put(b"1")
    aside.put(b"2", topic=None)
    assert (
        f"unknown where 1 of the dead letters belong, the first at {aside.dead}-0@1; nothing was sent"
        in aside.refusal()
    )
    assert (
        f"2 of the dead letters would be sent to {aside.dead} itself, the first at {aside.dead}-0@0"
        in aside.refusal("--to", aside.dead)
    )
    assert aside.returned() == []


def test_dead_letters_of_a_topic_that_was_created_again_are_new(aside):
    aside.put(b"old")
    assert aside.replay() == (0, {("undecodable", 0): 1})
    aside.kafka.delete_topic(aside.dead)
    aside.kafka.create_topic(aside.dead)
    aside.put(b"new")
    assert aside.replay() == (0, {("undecodable", 0): 1})
    assert [value for _, _, value, _ in aside.returned()] == [b"new", b"old"]


class HeldReplay:
    """A replay in a process of its own, held where it reaches `point` in its transaction `batch`."""

    def __init__(self, aside, folder, point, batch=0):
        folder.mkdir(exist_ok=True)
        command = [*KAFKA_EOS, "dead-letters", "replay"]
        command += [aside.dead, "--yes", *aside.named(), "--bootstrap-servers", aside.kafka.bootstrap]
        command += ["--option", "kafka.max.request.size=16000"]  # several record batches
        env = os.environ | Kill(point=point, batch=batch).environment(folder)
        self._folder, self._log = folder, folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while not held.reached(folder):
            assert self.process.poll() is None and time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.02)

    def release(self):
        """Let it go on to its end: the exit code, and what it said."""
        held.release(self._folder)
        return self.process.wait(60), self._log.read_text()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def many(aside):
    """Put 2,500 dead letters aside: three transactions."""
    error = headers_of(DeadLetter(cause=Cause.UNDECODABLE, topic=aside.source, partition=0, offset=1))
    values = [b"%04d" % number for number in range(2_500)]
    produce(aside.kafka.bootstrap, aside.dead, values, headers=error)
    return values


@pytest.mark.parametrize("point", ["half appended", "offsets committed", "ended"])
def test_a_replay_that_is_killed_is_continued_by_the_next_one(aside, tmp_path, point):
    """Killed in the second of three transactions: with its records in the log, before and after it is committed."""
    values = many(aside)
    with HeldReplay(aside, tmp_path, point, batch=1):
        pass  # it is killed
    sent = {"half appended": 1_000, "offsets committed": 1_000, "ended": 2_000}[point]
    assert aside.replay() == (0, {("undecodable", 0): 2_500 - sent})
    assert [value for _, _, value, _ in aside.returned()] == values


@pytest.mark.parametrize("point", ["begun", "half appended", "offsets committed"])
def test_a_replay_that_comes_back_late_ends_and_the_live_one_does_not_notice(aside, tmp_path, point):
    values = many(aside)
    with (
        HeldReplay(aside, tmp_path / "late", point) as late,
        HeldReplay(aside, tmp_path / "live", "half appended") as live,
    ):
        exit_code, said = late.release()
        assert exit_code != 0
        assert "kafka-eos explain ProducerFenced" in said
        exit_code, said = live.release()
        assert exit_code == 0, said
    assert [value for _, _, value, _ in aside.returned()] == values
