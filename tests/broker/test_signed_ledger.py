"""With `ledgerKey`, an entry that somebody else wrote is never a reason to skip: for each reader that decides by it."""

from __future__ import annotations

import itertools
import logging

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.errors import LedgerRefused, ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.decide import decide_micro_batch, signer_of
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.ledger.entry_format import encode_record
from spark_kafka_eos.ledger.progress import committed_by, last_entry
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.replay.send import plan
from spark_kafka_eos.tools.verify import verify
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads
from tests.coordinating import TransactionCoordinator
from tests.letters import headers_of
from tests.producing import produce

pytestmark = pytest.mark.broker

_numbers = itertools.count(1)
OLD, NEW = "an old key of many letters", "a new key of many letters"
UNSIGNED = "not signed with ledgerKey"


@pytest.fixture
def sink(either_kafka):
    """`sink(**options)`: a sink's options with an output topic and a transactional id of this test."""
    out = either_kafka.create_topic(f"signed-{next(_numbers)}")
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": out, "topic": out}
    return lambda **options: sink_options(given | options)


def batch(options, number):
    source = TopicPartition(options.topic, 0)  # any topic that exists
    return MicroBatch(
        query_id="q", batch_id=number, digest=f"{number}", sources=reads({source: number}, {source: number + 1})
    )


def write(cluster, options, number):
    """A whole micro-batch that appends nothing of its own; what became of it."""
    transaction = SharedTransaction(options, cluster, decide_micro_batch(options))
    nothing = Appended(partitions=0, records=0, bytes=0)
    next_one = batch(options, number)
    return commit_batch(transaction, next_one, lambda _: nothing, max_attempts=2, choice=BY_DRIVER).outcome


def forge(cluster, options, number, *, name=None, signer=None):
    """Commit an entry that says that batch `number` is done, in a transaction of another id."""
    entry = LedgerEntry(query_id="q", batch_id=number, digest=f"{number}", serial=100)
    coordinator = TransactionCoordinator(cluster, f"forger-{next(_numbers)}", 60_000)
    identity = coordinator.init_producer_id()
    value = encode_record(entry, signer) if signer else encode_record(entry)
    topic = LedgerTopic(cluster, LEDGER_TOPIC, name or options.transactional_id)
    topic.ensure()
    topic.append_entry(identity, value, timestamp_ms=1)
    coordinator.end(identity, commit=True)


def test_a_forged_entry_is_skipped_by_without_a_key_and_refused_with_one(cluster, sink, caplog):
    plain, signed = sink(), sink(ledgerKey=OLD, **{"kafka.transactional.id": f"{sink().topic}-signed"})
    for options, outcome in ((plain, "skipped"), (signed, "refused")):
        assert write(cluster, options, 0) == "committed"
        forge(cluster, options, 1)
        if outcome == "skipped":
            assert write(cluster, options, 1) == "skipped", "its records are lost: that is what the key is for"
        else:
            with caplog.at_level(logging.DEBUG), pytest.raises(LedgerRefused, match=UNSIGNED) as caught:
                write(cluster, options, 1)
            assert OLD not in str(caught.value) + caplog.text


def test_an_entry_that_was_copied_from_another_id_with_the_same_key_is_refused(cluster, sink):
    options = sink(ledgerKey=OLD)
    assert write(cluster, options, 0) == "committed"
    other = sink(ledgerKey=OLD, **{"kafka.transactional.id": f"{options.topic}-other"})
    forge(cluster, options, 1, signer=signer_of(other))
    with pytest.raises(LedgerRefused, match=UNSIGNED):
        write(cluster, options, 1)


def test_a_key_is_replaced_without_a_stop_and_the_old_one_no_longer_counts(cluster, sink):
    assert write(cluster, sink(ledgerKey=OLD), 0) == "committed"
    assert write(cluster, sink(ledgerKey=f"{NEW},{OLD}"), 0) == "skipped"
    assert write(cluster, sink(ledgerKey=f"{NEW},{OLD}"), 1) == "committed"
    assert write(cluster, sink(ledgerKey=NEW), 1) == "skipped"
    with pytest.raises(LedgerRefused, match=UNSIGNED):
        write(cluster, sink(ledgerKey=OLD), 2)
    assert write(cluster, sink(ledgerKey=NEW), 2) == "committed"


def test_a_ledger_without_a_key_gets_one_by_what_the_operator_knows(cluster, sink):
    assert write(cluster, sink(), 0) == "committed"
    with pytest.raises(LedgerRefused, match="it was written before the key was set") as caught:
        write(cluster, sink(ledgerKey=NEW), 1)
    assert NEW not in str(caught.value)
    word = next(each for each in str(caught.value).split("'") if each.startswith("write:"))
    assert write(cluster, sink(ledgerKey=NEW, resolve=word), 1) == "committed"
    assert write(cluster, sink(ledgerKey=NEW), 1) == "skipped"
    assert write(cluster, sink(ledgerKey=NEW), 2) == "committed"


def test_a_source_starts_only_where_a_signed_entry_ends(either_kafka, cluster, sink, monkeypatch):
    monkeypatch.setenv("LEDGER_KEY", NEW)
    options = sink(ledgerKey=NEW)
    assert write(cluster, options, 0) == "committed"

    def place(**more):
        given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "subscribe": "any"}
        read = source_options(given | {"sink.kafka.transactional.id": options.transactional_id} | more)
        assert read.sink is not None
        return committed_by(read.sink, cluster.cluster_id())

    expected = {TopicPartition(options.topic, 0): 1}
    assert place() == place(**{"sink.ledgerKey": "env:LEDGER_KEY"}) == expected
    with pytest.raises(LedgerRefused, match=UNSIGNED):
        place(**{"sink.ledgerKey": OLD})
    forge(cluster, options, 5)
    assert place() == {}
    with pytest.raises(LedgerRefused, match=UNSIGNED):
        place(**{"sink.ledgerKey": "env:LEDGER_KEY"})


def test_the_checker_and_the_command_for_operators_take_the_key(either_kafka, cluster, sink, monkeypatch, tmp_path):
    monkeypatch.setenv("LEDGER_KEY", NEW)
    options = sink(ledgerKey=NEW, txnAppId="q", txnVersion="1")
    name = options.transactional_id
    assert write(cluster, sink(ledgerKey=NEW), 0) == "committed"

    def resolve(key):
        given = ["query", "resolve", name, "--bootstrap-servers", either_kafka.bootstrap]
        given += ["--option", "txnAppId=q", "--option", "txnVersion=1", "--option", f"ledgerKey={key}"]
        ended = CliRunner().invoke(app, given)
        assert NEW not in ended.output and OLD not in ended.output
        return ended.exit_code, " ".join(ended.output.split())

    (tmp_path / "old").write_text(OLD)
    assert resolve("env:LEDGER_KEY")[0] == 0
    code, said = resolve(f"file:{tmp_path / 'old'}")
    assert code == 1 and UNSIGNED in said
    verified = verify(either_kafka.bootstrap, options.topic, transactional_id=name, ledger_key="env:LEDGER_KEY")
    assert verified.violated == ()
    with pytest.raises(ToolFailed, match=UNSIGNED):
        verify(either_kafka.bootstrap, options.topic, transactional_id=name, ledger_key=f"file:{tmp_path / 'old'}")
    command = ["verify", "--topic", options.topic, "--bootstrap-servers", either_kafka.bootstrap]
    command += ["--transactional-id", name, "--ledger-key"]
    assert CliRunner().invoke(app, [*command, "env:LEDGER_KEY"]).exit_code in (0, 3)
    refused = CliRunner().invoke(app, [*command, NEW])
    assert refused.exit_code == 2 and NEW not in refused.output
    assert CliRunner().invoke(app, [*command, "env:NO_SUCH_KEY"]).exit_code == 2


def test_a_replay_of_dead_letters_skips_nothing_because_of_a_forged_entry(either_kafka, cluster, sink):
    options = sink()
    dead = either_kafka.create_topic(f"{options.topic}-dead")
    letter = DeadLetter(cause=Cause.UNDECODABLE, topic=options.topic, partition=0, offset=0)
    produce(either_kafka.bootstrap, dead, [b"1"], headers=headers_of(letter))
    given = {"kafka.bootstrap.servers": either_kafka.bootstrap}
    forge(cluster, options, 3, name=f"{dead}.replay.undecodable.0")
    with pytest.raises(ToolFailed, match="holds the progress of 'q'; nothing was sent"):
        plan(cluster, dead, given, f"{dead}.replay")
    with pytest.raises(LedgerRefused, match=UNSIGNED):
        plan(cluster, dead, given | {"ledgerKey": NEW}, f"{dead}.replay")


def test_onlookers_see_entries_with_any_signature(cluster, sink):
    options = sink(ledgerKey=NEW)
    assert write(cluster, options, 0) == "committed"
    found = last_entry(cluster, LEDGER_TOPIC, options.transactional_id)
    assert found is not None and found.batch_id == 0
