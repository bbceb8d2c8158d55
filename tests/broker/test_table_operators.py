"""What an operator sees of a table that takes part, and how its batch is settled, on real brokers of both protocols."""

from __future__ import annotations

import itertools
import json
import sqlite3

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.errors import ProducerFenced
from spark_kafka_eos.tools.cli.main import app
from tests import held
from tests.broker.write_both import table_at

pytestmark = pytest.mark.broker

modules = itertools.count(1)


@pytest.fixture
def module(scene, tmp_path, monkeypatch):
    """The name of a module with the scene's table, and a function that returns its rows."""
    module = f"shop_{next(modules)}"
    (tmp_path / f"{module}.py").write_text(
        "from tests.broker.write_both import rows_in, table_at\n\n\n"
        f"def rows():\n    return table_at({scene.database!r})\n\n\n"
        f"def all_rows():\n    return rows_in({scene.database!r})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return module


@pytest.fixture
def command(scene, module):
    """`command(*words)`: what `kafka-eos … ID` says of the scene's query, in JSON, and its exit code."""

    def run(*words, table=False):
        given = ["--table", f"{module}:rows"] if table else []
        of = [f"id-{scene.topic}", *given, "--bootstrap-servers", scene.kafka.bootstrap, "--json"]
        done = CliRunner().invoke(app, [*words, *of])
        assert done.exit_code in (0, 1, 3), done.output
        return done.exit_code, json.loads(done.stdout) if done.stdout.startswith("{") else done.output

    return run


@pytest.mark.parametrize("either_kafka", ["kafka"], ids=["TV2"], indirect=True)  # the protocol makes no difference
def test_topic_and_table_are_compared_row_by_row(scene, module):
    scene.write(scene.driver(), 0)

    def verified():
        words = ["--topic", scene.topic, "--table", f"{module}:all_rows", "--wait", "60", "--json"]
        done = CliRunner().invoke(app, ["verify", "--bootstrap-servers", scene.kafka.bootstrap, *words])
        (table,) = (each for each in json.loads(done.stdout)["findings"] if each["invariant"] == "table")
        return done.exit_code, {each["kind"]: [each["where"], each["count"]] for each in table["violations"]}

    assert verified() == (0, {})
    database = sqlite3.connect(scene.database)
    database.execute("UPDATE rows SET row = 'other' WHERE row = '0-2'")
    database.execute("INSERT INTO rows VALUES ('0-1')")
    database.commit()
    database.close()
    assert verified() == (
        1,
        {
            "only in the table": ["row (other)", 1],
            "only in the topic": [f"{scene.topic}-0@1", 1],
            "repeated in the table": ["row (0-1)", 1],
        },
    )


def test_a_batch_that_the_table_has_is_shown_as_prepared_and_settled_by_a_command(scene, command):
    scene.write(scene.driver(), 0)
    code, same = command("query", "show", table=True)
    assert code == 0
    assert (same["table"]["token"]["batch_id"], same["table"]["transaction"]) == (0, "over")
    assert same["table"]["next_start"] == "goes on: table and Kafka have the same batches"
    assert command("query", "resolve", "--settle", table=True)[1]["settle"]["reason"].endswith("the same batches")

    scene.killed(1, "table committed")
    shown = command("query", "show", table=True)[1]["table"]
    assert (shown["version"], shown["token"]["batch_id"], shown["prepared"], shown["signed"]) == (4, 1, True, False)
    assert shown["next_start"].startswith("commits this transaction (EndTxn)")
    assert command("transactions", "describe")[1]["table"] == {"query_id": "query", "batch_id": 1}
    code, refused = command("transactions", "abort", "--yes", "--fence-owner")
    assert (code, refused["done"]) == (1, False)
    assert "a table takes part in it, which may have batch 1" in refused["reason"]

    code, found = command("query", "resolve", table=True)
    assert (code, found["verdict"]) == (3, None), "without a checkpoint, the next batch is not known"
    assert (found["settle"]["step"], found["settle"]["done"]) == ("commit", False)
    code, settled = command("query", "resolve", "--settle", table=True)
    assert (code, settled["settle"]["done"]) == (0, True)
    scene.both_have(0, 1)
    assert command("query", "show", table=True)[1]["table"]["transaction"] == "over"
    assert scene.write(scene.driver(), 1, "next").outcome == "skipped"
    scene.both_have(0, 1)


def test_a_batch_that_the_table_does_not_have_is_only_settled_by_a_fence_of_its_driver(scene, command):
    scene.write(scene.driver(), 0)
    process, folder = scene.process(1, "offsets committed")
    code, refused = command("query", "resolve", "--settle", table=True)
    assert (code, refused["settle"]["done"]) == (3, False)
    assert "the table does not have its batch: its driver may be alive" in refused["settle"]["reason"]
    code, settled = command("query", "resolve", "--settle", "--fence-owner", table=True)
    assert (code, settled["settle"]["step"]) == (0, "fence")
    held.release(folder)
    assert scene.said(process)[0] == ProducerFenced.__name__
    scene.both_have(0)
    assert scene.write(scene.driver(), 1, "next").outcome == "committed"
    scene.both_have(0, 1)


@pytest.mark.slow
def test_what_only_the_query_can_append_again_is_not_settled(scene, command, await_state):
    scene.killed(0, "table committed", timeout_ms=1_000)
    await_state(f"id-{scene.topic}", "CompleteAbort")
    code, refused = command("query", "resolve", "--settle", table=True)
    assert code == 3
    assert "Kafka lacks rows that the table has" in refused["settle"]["reason"]
    shown = command("query", "show", table=True)[1]["table"]
    assert shown["next_start"].startswith("appends the batch to Kafka again")
    assert table_at(scene.database).held().version == 2, "nothing was changed"
