"""What an operator sees of queries, from real ledgers: whoever wrote them, and whatever became of their topics."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import shlex
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from spark_kafka_eos.appending.files import files_at
from spark_kafka_eos.errors import LedgerRefused
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.preflight.rights import Right
from spark_kafka_eos.spark.checkpoint import next_batch
from spark_kafka_eos.tools.cli import top
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.cli.top import Look
from spark_kafka_eos.tools.cli.top_rows import QUERIES, query_rows
from spark_kafka_eos.tools.operators.queries import QueryReader
from tests.broker.conftest import expire, options_of
from tests.coordinating import TransactionCoordinator
from tests.copying import Copy
from tests.pages import ROOT
from tests.principals import add_user
from tests.producing import delete_records, produce, transact
from tests.reading import await_stable

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
OLD = 1_700_000_000_000  # a record's timestamp


@pytest.fixture
def books(kafka):
    """A ledger topic of this test's own."""
    return kafka.create_topic(f"books-{next(numbers)}", 1, {"cleanup.policy": "compact,delete", "retention.ms": -1})


@pytest.fixture
def cluster(kafka):
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        yield cluster


@pytest.fixture
def copy(kafka, cluster, books, topic):
    """`copy(records, **options)`: a query that is to copy a new topic of so many records in each of two partitions."""

    def make(records=600, **options):
        source = topic("queries-in", 2, {"retention.ms": -1})
        for partition in (0, 1):
            produce(kafka.bootstrap, source, [b"x"] * records, partition=partition, timestamp=OLD + partition)
        target = topic("queries-out", 2)
        return Copy(kafka.bootstrap, cluster, source, target, options={"ledgerTopic": books} | options)

    return make


@pytest.fixture
def reader(cluster, books):
    return lambda **more: QueryReader(cluster, ledger_topics=[books], **more)


@pytest.fixture
def command(kafka, books):
    """`command(*words)`: what `kafka-eos query …` prints in 80 columns, and its exit code."""

    def run(*words, ledger_topic=books, code=0):
        given = ["--bootstrap-servers", kafka.bootstrap, *(["--ledger-topic", ledger_topic] if ledger_topic else [])]
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["query", *words, *given])
        assert done.exit_code == code, done.output
        return done.output

    return run


def commit(query, number, start, end):
    """A whole batch, to its marker in the ledger topic: it is written after the driver was told of the commit."""
    report = query.run(number, start, end)
    assert report.outcome == "committed"
    await_stable(str(query.options.client.librdkafka()["bootstrap.servers"]), query.options.ledger_topic)
    return report


def entries(query):
    return [commit.entry for commit in query.commits]


# -- reading


def test_a_query_is_found_with_its_last_commit_its_lag_and_its_owner(cluster, copy, reader):
    query = copy()
    report = commit(query, 0, 0, 100)
    commit(query, 1, 100, 500)
    (found,) = reader(keep=10).read(times=True)
    assert found.transactional_id == query.options.transactional_id
    assert [entry.batch_id for entry in entries(found)] == [0, 1]
    assert (found.entry.written.records, found.commits_missing) == (800, 0)
    assert (found.last.record.producer_id, found.last.record.epoch) == (report.producer_id, report.epoch + 1)
    assert abs(found.last.record.timestamp_ms - time.time() * 1e3) < 60_000
    (source,) = found.sources
    assert source.cluster == cluster.cluster_id()
    lags = source.partitions
    assert {tp.partition: (lag.committed, lag.unread, lag.oldest_unread_ms) for tp, lag in lags.items()} == {
        0: (500, 100, OLD),
        1: (500, 100, OLD + 1),
    }
    assert (found.unread, found.held, found.lost, found.late_ms(OLD + 1000)) == (200, 0, 0, 1000)
    assert isinstance(found.owner, TransactionFacts)
    assert found.owner.state in ("PrepareCommit", "CompleteCommit")


def test_a_second_look_reads_what_is_new_and_forgets_a_topic_that_was_deleted(kafka, copy, reader, books):
    query, looking = copy(), reader()
    assert looking.read() == []
    commit(query, 0, 0, 100)
    assert [entry.batch_id for entry in entries(looking.read()[0])] == [0]
    commit(query, 1, 100, 200)
    assert [entry.batch_id for entry in entries(looking.read()[0])] == [1]
    kafka.delete_topic(books)
    assert (looking.read(), looking.missing) == ([], [books])


def test_a_ledger_topic_that_was_created_again_between_two_looks_is_read_from_its_beginning(kafka, copy, reader, books):
    query, looking = copy(), reader()
    commit(query, 0, 0, 100)
    assert [found.transactional_id for found in looking.read()] == [query.options.transactional_id]
    kafka.delete_topic(books)
    kafka.create_topic(books, 1, {"cleanup.policy": "compact"})
    with Cluster(query.options.client) as fresh:  # the other one knows the topic by its old id
        successor = Copy(
            kafka.bootstrap,
            fresh,
            query.source,
            query.target,
            options={"kafka.transactional.id": f"{query.target}-2", "ledgerTopic": books},
        )
        commit(successor, 0, 0, 100)
        commit(successor, 1, 100, 200)
    assert [(found.transactional_id, found.entry.batch_id) for found in looking.read()] == [(f"{query.target}-2", 1)]


def test_a_record_is_in_doubt_while_its_transaction_is_open_and_gone_when_it_is_aborted(cluster, copy, reader, books):
    query, looking = copy(), reader()
    commit(query, 0, 0, 100)
    coordinator = TransactionCoordinator(cluster, query.options.transactional_id, 600_000)
    identity = coordinator.init_producer_id()
    (last,) = looking.read()
    value = encode_record(replace(last.entry, batch_id=1, serial=2))
    ledger = LedgerTopic(cluster, books, query.options.transactional_id)
    ledger.append_entry(identity, value, timestamp_ms=int(time.time() * 1e3))
    (found,) = looking.read()
    assert (found.entry.batch_id, found.pending.entry.batch_id, found.owner.state) == (0, 1, "Ongoing")
    coordinator.end(identity, commit=False)
    deadline = time.monotonic() + 60
    while (found := looking.read()[0]).pending is not None:
        assert time.monotonic() < deadline, "the marker does not come"
    assert found.entry.batch_id == 0


def test_what_open_transactions_hold_back_and_what_is_deleted_is_not_unread(kafka, copy, reader):
    query = copy(100)
    commit(query, 0, 0, 50)
    transact(kafka.bootstrap, query.source, [b"aborted"] * 10, "abort", partition=1)
    hanging = transact(kafka.bootstrap, query.source, [b"open"] * 7, "leave open", partition=0)
    delete_records(kafka.bootstrap, query.source, 60)
    (found,) = reader().read(times=True)
    lags = {tp.partition: lag for tp, lag in found.sources[0].partitions.items()}
    assert [(lags[0].unread, lags[0].held, lags[0].lost), (lags[1].unread, lags[1].held, lags[1].lost)] == [
        (40, 7, 10),
        (61, 0, 0),  # with the aborted records and their marker
    ]
    assert [lags[number].oldest_unread_ms for number in (0, 1)] == [OLD, OLD + 1]
    hanging.abort_transaction(30)


def test_aborted_records_and_markers_are_not_the_oldest_unread_record(kafka, copy, reader):
    query = copy(100)
    commit(query, 0, 0, 100)
    transact(kafka.bootstrap, query.source, [b"aborted"] * 10, "abort")
    transact(kafka.bootstrap, query.source, [b"aborted"] * 10, "abort")
    assert reader().read(times=True)[0].sources[0].partitions[TopicPartition(query.source, 0)].oldest_unread_ms is None
    produce(kafka.bootstrap, query.source, [b"new"], timestamp=OLD + 5)
    assert reader().read(times=True)[0].late_ms(OLD + 6) == 1


def test_one_topic_that_was_deleted_does_not_hide_the_lag_of_the_others(kafka, copy, reader):
    one, other = copy(), copy()
    commit(one, 0, 0, 100)
    commit(other, 0, 0, 100)
    kafka.delete_topic(one.source)
    gone, there = (
        next(found for found in reader().read(times=True) if found.transactional_id == each.options.transactional_id)
        for each in (one, other)
    )
    assert (gone.unread, gone.unknown) == (None, [f"topic {one.source} does not exist"])
    assert (there.unread, there.unknown) == (1000, [])


def test_the_lag_of_a_source_on_another_cluster_is_known_only_with_a_connection_to_it(
    kafka, elsewhere, cluster, reader, topic, books
):
    source, target = elsewhere.create_topic(f"queries-far-{next(numbers)}", 2), topic("queries-out", 2)
    for partition in (0, 1):
        produce(elsewhere.bootstrap, source, [b"x"] * 10, partition=partition)
    with Cluster(options_of(elsewhere.bootstrap)) as far:
        options = {"ledgerTopic": books, "sourceClusters": far.cluster_id()}
        Copy(kafka.bootstrap, cluster, source, target, origin=far, options=options).run(0, 0, 4)
        await_stable(kafka.bootstrap, books)
        (unknown,) = reader().read(times=True)
        assert (unknown.unread, unknown.unknown) == (None, [f"it is on another cluster, {far.cluster_id()}"])
        (known,) = reader(sources=[far]).read(times=True)
        assert (known.unread, known.unknown) == (12, [])


def test_queries_with_a_ledger_topic_of_their_own_are_found_by_their_groups(cluster, copy, books):
    query = copy()
    commit(query, 0, 0, 100)
    looking = QueryReader(cluster)
    assert query.options.transactional_id not in [found.transactional_id for found in looking.read()]
    assert looking.find() == 0
    assert [
        found.ledger_topic for found in looking.read() if found.transactional_id == query.options.transactional_id
    ] == [books]
    (one,) = QueryReader(cluster, only=query.options.transactional_id).read()
    assert one.ledger_topic == books


# -- the commands


def test_what_the_commands_show_fits_80_columns(copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    name = query.options.transactional_id
    for words in (["list"], ["show", name], ["lag", name], ["ledger", name], ["history", name]):
        shown = command(*words)
        assert max(map(cell_len, shown.splitlines())) <= 80, shown
        assert "…" not in shown
        assert (query.source if words[0] == "lag" else name if words[0] in ("list", "show") else " 0 ") in shown


def test_json_has_what_the_tables_have(kafka, copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    commit(query, 1, 100, 200)
    name = query.options.transactional_id
    (listed,) = json.loads(command("list", "--json"))
    shown = json.loads(command("show", name, "--json"))
    assert (listed["transactional_id"], listed["last_commit"]["batch_id"], listed["unread"]) == (name, 1, 800)
    assert (shown["late_ms"] > 1000, shown["owner"]["producer_id"]) == (True, shown["last_commit"]["producer_id"])
    assert shown["ledger"]["agreement"] == "Record and pointer say the same."
    partitions = json.loads(command("lag", name, "--json"))["sources"][0]["partitions"]
    assert [(each["partition"], each["committed"], each["unread"]) for each in partitions] == [
        (0, 200, 400),
        (1, 200, 400),
    ]
    history = json.loads(command("history", name, "--json"))
    names = ("serial", "batch_id", "records", "dead_letters")
    assert [tuple(each[name] for name in names) for each in history] == [(1, 0, 200, 0), (2, 1, 200, 0)]
    assert json.loads(command("ledger", name, "--json"))["ledger"]["pointer"]["batch_id"] == 1


def test_history_says_what_it_does_not_show(copy, command):
    query = copy()
    for number in range(3):
        commit(query, number, number * 10, number * 10 + 10)
    name = query.options.transactional_id
    assert "earlier commits" not in command("history", name)
    assert "1 earlier commits are not shown" in command("history", name, "--limit", "2")


def test_a_pointer_whose_record_is_gone_still_counts_and_the_command_says_so(kafka, copy, command, books, cluster):
    query = copy()
    commit(query, 0, 0, 100)
    delete_records(kafka.bootstrap, books, latest(cluster, [TopicPartition(books, 0)])[TopicPartition(books, 0)])
    shown = command("ledger", query.options.transactional_id)
    assert "The record is gone" in shown and "none" in shown
    assert "has no record of" in command("show", query.options.transactional_id, code=3)


def test_a_pointer_that_has_expired_is_said_to_do_no_harm(kafka, copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    expire(kafka.bootstrap, query.options.ledger_group)
    assert "The pointer has expired" in command("show", query.options.transactional_id)


def test_an_unknown_id_and_a_missing_ledger_topic_are_told_apart(copy, command):
    commit(copy(), 0, 0, 100)
    assert "no query with transactional.id 'nobody' has committed here" in command("show", "nobody", code=3)
    assert "there is no topic 'nothing' on this cluster" in command("show", "nobody", ledger_topic="nothing", code=3)
    assert "there is no topic nothing" in command("list", ledger_topic="nothing", code=3)


def test_watching_prints_a_line_of_json_each_time_until_it_is_interrupted(copy, command, monkeypatch):
    commit(copy(), 0, 0, 100)
    pauses = []

    def sleep(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("spark_kafka_eos.tools.cli.shown.sleep", sleep)
    lines = command("list", "--watch", "0.5", "--json", code=130).splitlines()
    assert [json.loads(line)[0]["unread"] for line in lines] == [1000] * 3
    assert pauses == [0.5] * 3


# -- the topics that a query writes


def test_what_is_open_in_an_output_is_shown_with_who_ends_it(kafka, copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    name, target = query.options.transactional_id, str(query.options.topic)
    assert f"{target}: no transaction is open in 2 partitions" in " ".join(command("show", name).split())
    holder = transact(kafka.bootstrap, target, [b"y"] * 3, "leave open", transactional_id=f"{target}-open")
    try:
        shown = " ".join(command("show", name).split())
        (found,) = json.loads(command("show", name, "--json"))["outputs"]
    finally:
        holder.abort_transaction(30)
    assert "open transactions hold 3 offsets in 1 of 2 partitions; the oldest, in" in shown
    assert f"is of {target}-open, since" in shown and "who ends it: its owner" in shown
    assert (found["topic"], found["partitions"], found["held_offsets"]) == (target, 2, 3)
    assert [(each["transactional_id"], each["ending"]) for each in found["open"]] == [(f"{target}-open", "ongoing")]


def test_a_batch_without_records_does_not_hide_what_is_open_in_the_output(kafka, copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    commit(query, 1, 100, 100)
    name, target = query.options.transactional_id, str(query.options.topic)
    assert json.loads(command("show", name, "--json"))["last_commit"]["outputs"] == {}
    assert f"{target}: no transaction is open" in " ".join(command("show", name).split())


def test_an_output_that_was_deleted_is_said_to_be_gone(kafka, copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    kafka.delete_topic(str(query.options.topic))
    assert f"{query.options.topic} does not exist" in " ".join(command("show", query.options.transactional_id).split())


def test_the_live_screen_looks_at_outputs_where_a_cluster_has_too_many_partitions(
    kafka, cluster, copy, books, monkeypatch
):
    query = copy()
    commit(query, 0, 0, 100)
    target = str(query.options.topic)
    assert (top.MOST_PARTITIONS, inspect.signature(top.top).parameters["interval"].default) == (2_000, 2)
    monkeypatch.setattr(top, "MOST_PARTITIONS", 0)
    elsewhere = kafka.create_topic(f"{target}-elsewhere", 2)
    holder = transact(kafka.bootstrap, target, [b"y"] * 3, "leave open", transactional_id=f"{target}-held")
    another = transact(kafka.bootstrap, elsewhere, [b"y"], "leave open", transactional_id=elsewhere)
    try:
        picture = Look(cluster, topics=None, ledger_topics=[books])()
    finally:
        holder.abort_transaction(30)
        another.abort_transaction(30)
    looked_at = picture.survey.producers.keys()
    assert {TopicPartition(target, 0), TopicPartition(target, 1), TopicPartition(elsewhere, 0)} <= looked_at
    assert TopicPartition(elsewhere, 1) not in looked_at and TopicPartition(query.source, 0) not in looked_at
    (row,) = query_rows(picture)
    assert dict(zip(QUERIES.names, row.cells, strict=True))["output held"] == "3"
    assert "only those that queries write" in picture.remarks[0]


# -- what may not be seen


def test_what_this_principal_may_not_see_is_unknown_and_the_rest_is_shown(secured):
    kafka = secured.kafka
    number = next(numbers)
    source, target, books = (
        kafka.create_topic(f"{name}-{number}", 2 if name != "seen-books" else 1, {"cleanup.policy": "compact"})
        for name in ("seen-in", "seen-out", "seen-books")
    )
    for partition in (0, 1):
        produce(kafka.bootstrap, source, [b"x"] * 10, partition=partition, key=b"k")
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        query = Copy(kafka.bootstrap, cluster, source, target, options={"ledgerTopic": books})
        commit(query, 0, 0, 4)
    user = f"looker-{number}"

    def look(*words, code=0):
        given = ["--bootstrap-servers", kafka.bootstrap_of("SASL_PLAINTEXT"), "--ledger-topic", books]
        properties = ["--properties", str(login)]
        done = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["query", *words, *given, *properties])
        assert done.exit_code == code, done.output
        return done.output

    login = secured.certificates.ca.parent / f"{user}.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{user}" password="hunter2";\n'
    )
    add_user(kafka.bootstrap, user, "hunter2", [])
    assert f"Grant Describe on topic '{books}'" in " ".join(look("list", code=3).split())
    add_user(kafka.bootstrap, user, "hunter2", [Right("Read", "topic", books)])
    shown = " ".join(look("show", query.options.transactional_id).split())
    assert "20 records" not in shown and "8 records" in shown
    assert "The pointer is unknown" in shown
    assert "owner unknown: TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in shown
    assert f"lacks Describe on Topic {source}" in shown
    assert f"output {target}: unknown: this principal lacks Describe on Topic {target}" in shown

    name = query.options.transactional_id

    def known():
        found = json.loads(look("show", name, "--json"))
        [output] = found["outputs"]
        owner, pointer = found["owner"].get("producer_id"), found.get("ledger", {}).get("pointer")
        return found["unread"], found["late_ms"] is not None, owner, pointer is not None, output["held_offsets"]

    assert known() == (None, False, None, False, None)
    add_user(kafka.bootstrap, user, "hunter2", [Right("Describe", "topic", source)])
    assert known() == (12, False, None, False, None)
    more = [Right("Describe", "transactional id", name), Right("Describe", "group", query.options.ledger_group)]
    add_user(kafka.bootstrap, user, "hunter2", [*more, Right("Read", "topic", source), Right("Read", "topic", target)])
    unread, late, owner, pointer, held = known()
    assert (unread, late, owner is not None, pointer, held) == (12, True, True, True, 0)
    exporter = ["exporter", "--once", "--bootstrap-servers", kafka.bootstrap_of("SASL_PLAINTEXT")]
    exported = CliRunner().invoke(app, [*exporter, "--ledger-topic", books, "--properties", str(login)])
    assert "kafka_eos_cluster_up 1.0" in exported.output, exported.output


# -- why it is refused


@pytest.fixture
def checkpoint(tmp_path):
    """`checkpoint(query, *ends, done)`: the checkpoint of a query that has planned batches with these ends."""

    def make(query, *ends, done):
        for folder in ("offsets", "commits"):
            (tmp_path / folder).mkdir()
        (tmp_path / "metadata").write_text(json.dumps({"id": query.query}))
        for number, end in enumerate(ends):
            offsets = json.dumps({query.source: {"0": end, "1": end}})
            (tmp_path / "offsets" / str(number)).write_text(f'v1\n{{"batchTimestampMs":1}}\n{offsets}')
            if number < done:
                (tmp_path / "commits" / str(number)).write_text("v1\n{}")
        return str(tmp_path)

    return make


def test_both_sides_of_a_refusal_are_shown_and_the_option_that_settles_it(copy, command, checkpoint, cluster):
    query = copy()
    for number in range(3):
        commit(query, number, number * 100, number * 100 + 100)
    name, old = query.options.transactional_id, checkpoint(query, 100, 200, done=1)
    shown = command("resolve", name, "--checkpoint-location", old, code=1)
    said = " ".join(shown.split())
    assert "batch 2 of query query is committed (number 3)" in said
    assert "batch 1 of query query is planned and not done" in said
    assert re.search(rf"{query.source}-0 │ +300 │ +100 │ +200 ", said)
    assert "the last committed batch is 2, but this driver is at batch 1" in said
    (word,) = re.findall(r"^resolve='(skip-to:.*)'$", shown, re.MULTILINE)
    found = json.loads(command("resolve", name, "--checkpoint-location", old, "--json", code=1))
    assert (found["verdict"], [*found["resolve"]]) == ("refused", [word])
    settled = command("resolve", name, "--checkpoint-location", old, "--option", f"resolve={word}")
    assert "The batch would be skipped" in settled


def test_the_driver_is_refused_for_the_reason_and_with_the_words_that_the_command_prints(
    kafka, copy, command, checkpoint, cluster
):
    query = copy()
    location = checkpoint(query, 100, 200, 300, done=2)
    shown = command("resolve", query.options.transactional_id, "--checkpoint-location", location, code=1)
    batch, planned = next_batch(files_at(location, "checkpointLocation"))
    assert planned
    with pytest.raises(LedgerRefused) as refused:
        query.transaction.begin(batch)
    words = re.findall(r"^resolve='(.*)'$", shown, re.MULTILINE)
    assert words == re.findall(r"resolve='(.*?)'", str(refused.value)) != []
    arguments = shlex.split(re.findall(r"`(kafka-eos query resolve [^`]+)`", str(refused.value))[0])
    assert arguments[3] == query.options.transactional_id
    assert (
        arguments[arguments.index("--bootstrap-servers") + 1] == query.options.client.librdkafka()["bootstrap.servers"]
    )


def test_a_batch_that_is_not_refused_is_said_to_be_written_or_skipped(copy, command, checkpoint):
    query = copy()
    commit(query, 0, 0, 100)
    name, location = query.options.transactional_id, checkpoint(query, 100, done=1)
    shown = command("resolve", name, "--checkpoint-location", location)
    assert "comes next, and is not planned yet" in " ".join(shown.split())
    assert "The batch would be written: batch 0 is committed, and this is the next one." in " ".join(shown.split())
    assert "give --checkpoint-location" in command("resolve", name, code=3)
    assert "no batch is planned" in command("resolve", name, "--checkpoint-location", f"{location}/nothing", code=3)


def test_a_repeatable_batch_write_is_explained_by_its_version(copy, command):
    query = copy()
    commit(query, 0, 0, 100)
    given = [f"--option={name}" for name in ("txnAppId=monthly", "txnVersion=7", f"topic={query.options.topic}")]
    shown = command("resolve", query.options.transactional_id, *given, code=1)
    assert "but this one has txnAppId 'monthly'" in " ".join(shown.split())
    assert len(re.findall(r"^resolve='(?:write|skip):", shown, re.MULTILINE)) == 2


# -- the page


def test_what_the_page_runs_works(kafka, copy, command, checkpoint, books):
    query = copy()
    commit(query, 0, 0, 100)
    location = checkpoint(query, 100, done=1)
    page = (ROOT / "docs" / "queries.md").read_text()
    lines = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    run = set()
    for line in lines:
        program, group, name, *words = shlex.split(line.replace("orders-copy", query.options.transactional_id))
        assert (program, group) == ("kafka-eos", "query")
        run.add(name)
        words = [location if word.startswith("/") else word for word in words]
        if "--watch" in words:
            at = words.index("--watch")
            del words[at : at + 2]
        at = words.index("--bootstrap-servers")
        command(name, *words[:at], *words[at + 2 :])
    assert run == {"list", "show", "lag", "ledger", "history", "resolve"}
