"""Rows as encode tasks stage them and the driver appends them, on real brokers of both protocols: which partitions the
transaction spans, and what a topic's own limit makes of the record batches."""

from __future__ import annotations

import itertools
import re
import time

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from spark_kafka_eos.appending import staging_space
from spark_kafka_eos.appending.append import BlockAppender, append
from spark_kafka_eos.appending.blocks import ROWS, BlockEncoder
from spark_kafka_eos.appending.encode_settings import encode_settings, target
from spark_kafka_eos.appending.files import LocalFiles
from spark_kafka_eos.appending.staging import Staging
from spark_kafka_eos.appending.staging_space import Space
from spark_kafka_eos.errors import (
    AttemptsExhausted,
    InvalidRow,
    KafkaEosError,
    LedgerRefused,
    OutputLost,
    StagingFull,
    StagingLost,
)
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.ledger.decide import Decide, batch_write, decide_batch_write, decide_micro_batch, destination_of
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction import shared
from spark_kafka_eos.transaction.commit import commit_batch, committer
from tests.batches import BY_DRIVER
from tests.reading import await_stable

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
LIMIT = 1_000
BATCH = MicroBatch(query_id="query", batch_id=0, digest="digest")


class Died(BaseException):
    """The driver."""


def now():
    return int(time.time() * 1000)


@pytest.fixture
def new_topic(either_kafka):
    return lambda partitions=1, config=None: either_kafka.create_topic(f"staged-{next(numbers)}", partitions, config)


@pytest.fixture
def write(either_kafka, cluster, tmp_path):
    """`write(columns, **options)`: batch 0 with these rows, or the batch write that the options name; its report.
    `damage` may change the staged file first; `appended` is called after each attempt's last acknowledgement. With
    `run`, it is a batch write without txnAppId.
    """

    def write(columns, damage=None, attempts=1, appended=lambda: None, run=None, **options):
        columns.setdefault("key", [None] * len(columns["value"]))
        rows = pa.RecordBatch.from_pydict(columns, schema=pa.schema([(name, ROWS[name]) for name in columns]))
        given = {"kafka.bootstrap.servers": either_kafka.bootstrap, "kafka.transactional.id": f"id-{next(numbers)}"}
        sink = sink_options(given | options)
        staging = Staging(None) if damage is None else Staging(str(tmp_path), inline_bytes=0)

        def looked_up(topic):
            return target(cluster, topic, sink.ledger_topic)

        def stage():
            encoder = BlockEncoder(encode_settings(sink, sink.topic, cluster), 0, looked_up, now)
            report = staging.stage("0", 0, itertools.chain(encoder.add(rows), encoder.finish()))
            if damage is not None:
                damage(tmp_path / report.path)
            return [report]

        batch: MicroBatch = BATCH
        decide: Decide | None = decide_micro_batch(sink)
        if sink.txn_app_id is not None:
            destination = destination_of(sink, columns.get("topic", []))
            batch = batch_write(sink.txn_app_id, sink.txn_version, destination=destination)
            decide = decide_batch_write(sink)
        elif run is not None:
            batch, decide = batch_write(None, None, run=run), None
        staged = BlockAppender(cluster, sink, staging, stage, batch.batch_id)

        def attempt(identity):
            report = staged(identity)
            appended()
            return report

        written_by = committer(sink, cluster, decide)
        return commit_batch(written_by, batch, attempt, max_attempts=attempts, choice=BY_DRIVER)

    return write


@pytest.fixture
def created_again(either_kafka, monkeypatch):
    """`created_again(topic, point)`: delete it and create it again when a batch first reaches this point; `dies`: and
    the driver ends there.
    """

    def once(topic, point, *, dies=False):
        def failpoint(name, _=None):
            if name == point:
                monkeypatch.undo()
                either_kafka.delete_topic(topic)
                either_kafka.create_topic(topic)
                if dies:
                    raise Died

        monkeypatch.setattr(shared, "failpoint", failpoint)

    return once


def test_topics_and_partitions_that_are_registered_but_not_written_get_no_marker(cluster, new_topic, write):
    one, other = new_topic(4), new_topic(2)
    report = write({"value": [b"1", b"2"], "topic": [one, one], "partition": [2, 2]}, outputTopics=f"{one},{other}")
    assert (report.outcome, report.partitions) == ("committed", 1)
    partitions = [TopicPartition(one, n) for n in range(4)] + [TopicPartition(other, n) for n in range(2)]
    deadline = time.monotonic() + 60
    while (stable := latest(cluster, partitions))[TopicPartition(one, 2)] == 0:
        assert time.monotonic() < deadline, "the marker does not come"
    assert stable == dict.fromkeys(partitions, 0) | {TopicPartition(one, 2): 3}, "two records and the marker"
    assert latest(cluster, partitions, isolation_level="read_uncommitted") == stable


def test_a_row_whose_key_leads_to_a_partition_that_is_not_declared_is_written_to_no_other_one(
    new_topic, write, consumed
):
    topic, dead = new_topic(4), new_topic()
    keys = [b"%d" % number for number in range(20)]
    in_partition = [[key for key in keys if (murmur2(key) & 0x7FFFFFFF) % 4 == number] for number in range(4)]
    declared = {"topic": topic, "outputTopics": f"{topic}:0-1"}
    with pytest.raises(InvalidRow, match=rf"a row goes to {topic}-[23], .* not in outputTopics"):
        write({"value": keys, "key": keys}, **declared)
    assert [consumed(topic, number) for number in range(4)] == [[]] * 4
    write({"value": keys, "key": keys}, **declared, deadLetterTopic=dead)
    assert [consumed(topic, number) for number in range(4)] == [*in_partition[:2], [], []]
    assert sorted(consumed(dead)) == sorted(in_partition[2] + in_partition[3])


def test_record_batches_are_cut_to_what_the_topic_takes(new_topic, write, consumed):
    topic = new_topic(config={"max.message.bytes": LIMIT})
    values = [b"%0100d" % number for number in range(100)]
    assert write({"value": values}, topic=topic).outcome == "committed"
    assert consumed(topic) == values


def test_a_record_too_large_for_the_topic_fails_the_batch_and_nothing_of_it_is_visible(new_topic, write, consumed):
    topic = new_topic(config={"max.message.bytes": LIMIT})
    with pytest.raises(InvalidRow, match=rf"{topic}-0 .*1,000 \(the topic's max.message.bytes\)") as raised:
        write({"value": [b"small", b"x" * LIMIT, b"small"]}, topic=topic)
    assert raised.value.committed == "nothing"
    assert consumed(topic) == consumed(topic, isolation_level="read_uncommitted") == []


def test_a_record_too_large_for_the_topic_is_a_dead_letter_in_the_same_transaction(new_topic, write, consumed):
    topic, dead = new_topic(config={"max.message.bytes": LIMIT}), new_topic()
    report = write({"value": [b"small", b"x" * LIMIT, b"small"]}, topic=topic, deadLetterTopic=dead)
    assert (report.outcome, report.records, report.partitions) == ("committed", 3, 2)
    assert (consumed(topic), consumed(dead)) == ([b"small", b"small"], [b"x" * LIMIT])


def test_a_dead_letter_that_its_topic_does_not_take_fails_the_batch(new_topic, write, consumed):
    topic, dead = (new_topic(config={"max.message.bytes": LIMIT}) for _ in range(2))
    with pytest.raises(InvalidRow, match=rf"a dead letter for {dead}-0 .*1,000 \(the topic's max.message.bytes\)"):
        write({"value": [b"small", b"x" * LIMIT]}, topic=topic, deadLetterTopic=dead)
    assert consumed(topic) == consumed(dead) == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_timestamp_that_the_topic_does_not_take_makes_a_dead_letter_in_the_same_transaction(
    either_kafka, new_topic, write, consumed, side
):
    """The topic of dead letters does not take it either, so it gets the time of writing there."""
    topic, dead = (new_topic(config={f"message.timestamp.{side}.max.ms": 60_000}) for _ in range(2))
    far = {"before": 1, "after": now() + 3_600_000}[side]
    rows = {"value": [b"now", b"far"], "timestamp": [None, far]}
    assert write(rows, topic=topic, deadLetterTopic=dead).outcome == "committed"
    for name in (topic, dead):
        await_stable(either_kafka.bootstrap, name)
    assert (consumed(topic), consumed(dead)) == ([b"now"], [b"far"])


def test_a_row_without_a_key_for_a_compacted_topic_is_a_dead_letter_in_the_same_transaction(
    either_kafka, new_topic, write, consumed
):
    topic, dead = new_topic(config={"cleanup.policy": "compact"}), new_topic()
    rows = {"value": [b"1", b"2", b"3"], "key": [b"a", None, b"b"]}
    with pytest.raises(InvalidRow, match=f"INVALID_RECORD.*{topic}-0"):
        write(dict(rows), topic=topic)
    assert write(rows, topic=topic, deadLetterTopic=dead).outcome == "committed"
    for name in (topic, dead):
        await_stable(either_kafka.bootstrap, name)
    assert (consumed(topic), consumed(dead)) == ([b"1", b"3"], [b"2"])


def test_what_only_the_broker_finds_out_of_a_record_makes_it_no_dead_letter_but_fails_the_batch(
    new_topic, write, consumed
):
    """It stores the records as the topic says, which takes more room than as they were sent."""
    topic, dead = new_topic(config={"compression.type": "uncompressed", "max.message.bytes": LIMIT}), new_topic()
    given = {"topic": topic, "deadLetterTopic": dead, "kafka.compression.type": "gzip"}
    with pytest.raises(InvalidRow, match=f"(MESSAGE|RECORD_LIST)_TOO_LARGE.*{topic}-0") as raised:
        write({"value": [b"x" * 2 * LIMIT]}, **given)
    assert raised.value.committed == "nothing"
    assert consumed(topic) == consumed(dead) == []


def test_a_row_that_changed_on_disk_fails_the_batch_and_nothing_of_it_is_visible(new_topic, write, consumed):
    """Otherwise it would get a new CRC, and be committed like valid data."""

    def damage(file):
        staged = file.read_bytes()
        assert staged.count(b"third") == 1
        file.write_bytes(staged.replace(b"third", b"THIRD"))

    topic = new_topic()
    values = [b"first" * LIMIT, b"second", b"third"]
    with pytest.raises(StagingLost, match=rf"for {topic}-0 was damaged .* Nothing was committed") as raised:
        write({"value": values}, damage=damage, topic=topic, **{"kafka.max.request.size": 6 * LIMIT})
    assert raised.value.committed == "nothing"
    assert consumed(topic) == []


def test_a_shuffled_block_that_changed_is_not_appended(cluster, new_topic, record_batch, consumed):
    topic = new_topic()
    block = record_batch(None, 0, [b"value"])
    block[-2] ^= 1
    identity = idempotent_identity(cluster)
    with pytest.raises(StagingLost, match="was damaged between encoding and appending"):
        append(cluster, identity, [(TopicPartition(topic, 0), 1, block)])
    assert consumed(topic) == []


def test_a_batch_for_which_the_disk_has_no_room_is_invisible_and_written_once_when_there_is(
    new_topic, write, consumed, monkeypatch
):
    def keep(file):
        """Stage in a file, and leave it as it is."""

    topic, values = new_topic(), [b"%01000d" % number for number in range(100)]
    given = {"topic": topic, "kafka.transactional.id": f"full-{next(numbers)}", "kafka.max.request.size": 6 * LIMIT}
    with monkeypatch.context() as full:
        spaces = itertools.chain([Space(free=60_000_000, total=10**9)], itertools.repeat(Space(free=0, total=10**9)))
        full.setattr(LocalFiles, "space", lambda _: next(spaces))
        full.setattr(staging_space, "_TASKS", 10**9)  # so that the task looks before each block
        with pytest.raises(StagingFull, match="Nothing was committed") as raised:
            write({"value": values}, damage=keep, **given)
    assert raised.value.committed == "nothing"
    assert consumed(topic) == consumed(topic, isolation_level="read_uncommitted") == []
    assert write({"value": values}, damage=keep, **given).outcome == "committed"
    assert consumed(topic) == values


def two_topics(first, second):
    return {"value": [b"1", b"2"] * 50, "topic": [first, second] * 50}


def test_a_topic_that_is_deleted_for_good_before_the_commit_stops_the_batch_and_nothing_is_committed(
    either_kafka, new_topic, write, consumed, monkeypatch
):
    first, second = new_topic(), new_topic()

    def failpoint(name, _=None):
        if name == "all appended":
            monkeypatch.undo()
            either_kafka.delete_topic(first)

    monkeypatch.setattr(shared, "failpoint", failpoint)
    with pytest.raises(KafkaEosError, match=first) as stopped:
        write(two_topics(first, second), attempts=2, outputTopics=f"{first},{second}")
    assert stopped.value.committed == "nothing"
    assert consumed(second) == []


def test_a_topic_that_is_created_again_before_the_offsets_are_added_gets_the_whole_batch(
    new_topic, write, consumed, created_again
):
    first, second = new_topic(), new_topic()
    created_again(first, "all appended")
    report = write(two_topics(first, second), attempts=2, outputTopics=f"{first},{second}")
    assert report.outcome == "committed"
    assert [f"topic '{first}' was deleted" in why for why in report.redone] == [True]
    assert (consumed(first), consumed(second)) == ([b"1"] * 50, [b"2"] * 50)


@pytest.mark.parametrize("as_dead_letters", [False, True], ids=["a topic", "the topic of dead letters"])
def test_a_topic_that_is_created_again_right_before_the_commit_is_lost_aloud_and_the_others_batch_is_not_repeated(
    new_topic, write, consumed, created_again, as_dead_letters
):
    first, second = new_topic(), new_topic()
    options = {"outputTopics": f"{first},{second}", "kafka.transactional.id": f"lost-{first}"}
    rows = two_topics(first, second)
    if as_dead_letters:
        options |= {"outputTopics": second, "deadLetterTopic": first}
        rows["topic"] = [None, second] * 50
    created_again(first, "offsets committed")
    with pytest.raises(OutputLost, match=f"lost are 50 records in 1 partitions of topic '{first}'") as lost:
        write(rows, attempts=2, **options)
    assert lost.value.committed == "part"
    lost_records = f"batch 0 is incomplete: .* was deleted .* lost are 50 records of topic '{first}'"
    with pytest.raises(LedgerRefused, match=lost_records) as refused:
        write(rows, attempts=2, **options)
    (word,) = re.findall(r"resolve='(skip:[^']+)'", str(refused.value))
    assert write(rows, **options, resolve=word).outcome == "skipped"
    assert (consumed(first), consumed(second)) == ([], [b"2"] * 50)


@pytest.mark.parametrize("lost_as", ["a topic", "the topic of dead letters", "a topic that rows name"])
def test_a_batch_write_that_lost_a_topic_is_neither_repeated_nor_skipped_until_somebody_decides(
    new_topic, write, consumed, created_again, lost_as
):
    first, second = new_topic(), new_topic()
    options = {"txnAppId": f"app-{first}", "kafka.transactional.id": f"app-{first}"}
    rows = two_topics(first, second)
    if lost_as == "the topic of dead letters":
        options |= {"outputTopics": second, "deadLetterTopic": first}
        rows["topic"] = [None, second] * 50
    elif lost_as == "a topic":
        options |= {"outputTopics": f"{first},{second}"}
    write({"value": [b"4"] * 2, "topic": [second] * 2}, txnVersion="4", **options)
    created_again(first, "offsets committed")
    with pytest.raises(OutputLost, match=f"lost are 50 records in 1 partitions of topic '{first}'") as lost:
        write(rows, txnVersion="5", **options)
    assert lost.value.committed == "part"
    words = {}
    for version in ("5", "6"):
        what = f"version 5 of 'app-{first}' is incomplete: .* lost are 50 records of topic '{first}'"
        with pytest.raises(LedgerRefused, match=what) as refused:
            write(rows, txnVersion=version, **options)
        words[version] = dict(re.findall(r"resolve='((write|skip):[^']+)'", str(refused.value)))
    assert [sorted(words[version].values()) for version in words] == [["skip", "write"], ["write"]]
    assert (consumed(first), consumed(second)) == ([], [b"4"] * 2 + [b"2"] * 50)
    skip = next(word for word in words["5"] if word.startswith("skip"))
    assert write(rows, txnVersion="5", **options, resolve=skip).outcome == "skipped"
    assert write(rows, txnVersion="6", **options, resolve=next(iter(words["6"]))).outcome == "committed"
    assert write(rows, txnVersion="5", **options).outcome == "skipped", "the word for version 6 settled it"
    assert (consumed(first), consumed(second)) == ([b"1"] * 50, [b"4"] * 2 + [b"2"] * 100)


def test_a_batch_write_of_whose_topics_one_was_created_again_is_not_written_to_the_others_again(
    new_topic, write, consumed, either_kafka, cluster
):
    first, second = new_topic(), new_topic()
    options = {"txnAppId": f"app-{first}", "kafka.transactional.id": f"app-{first}", "txnVersion": "5"}
    options |= {"outputTopics": f"{first},{second}"}
    rows = two_topics(first, second)
    write(rows, **options)
    either_kafka.delete_topic(first)
    either_kafka.create_topic(first)
    cluster.refresh([first])  # as a job that is run again, in another process
    with pytest.raises(LedgerRefused, match="txnVersion 5 is committed, but .* some of its topics were created again"):
        write(rows, **options)
    assert (consumed(first), consumed(second)) == ([], [b"2"] * 50)


def test_without_an_app_id_the_error_says_that_a_rerun_would_repeat_what_the_other_topics_have(
    new_topic, write, created_again
):
    first, second = new_topic(), new_topic()
    created_again(first, "offsets committed")
    with pytest.raises(OutputLost, match="do not write the batch again"):
        write(two_topics(first, second), run="run", outputTopics=f"{first},{second}")


def test_a_batch_of_a_driver_that_died_before_it_noticed_a_deletion_is_not_skipped_until_somebody_decides(
    new_topic, write, consumed, created_again
):
    first, second = new_topic(), new_topic()
    options = {"outputTopics": f"{first},{second}", "kafka.transactional.id": f"died-{first}"}
    rows = two_topics(first, second)
    created_again(first, "ended", dies=True)
    with pytest.raises(Died):
        write(rows, **options)
    with pytest.raises(LedgerRefused, match=f"batch 0 is committed, but topic '{first}' was deleted") as refused:
        write(rows, **options)
    (word,) = re.findall(r"resolve='(skip:[^']+)'", str(refused.value))
    assert write(rows, **options, resolve=word).outcome == "skipped"
    assert (consumed(first), consumed(second)) == ([], [b"2"] * 50)


def test_at_least_once_a_topic_that_is_created_again_after_its_records_were_acknowledged_gets_them_again(
    new_topic, write, consumed, either_kafka
):
    first, second = new_topic(), new_topic()

    def create_again():
        if not deleted:
            deleted.append(first)
            either_kafka.delete_topic(first)
            either_kafka.create_topic(first)

    deleted = []
    options = {"outputTopics": f"{first},{second}", "deliveryGuarantee": "at-least-once"}
    report = write(two_topics(first, second), attempts=2, appended=create_again, **options)
    assert [f"topic '{first}' was deleted" in why for why in report.redone] == [True]
    assert (consumed(first), consumed(second)) == ([b"1"] * 50, [b"2"] * 100)


def test_at_least_once_a_topic_that_is_deleted_for_good_fails_the_batch(new_topic, write, either_kafka):
    first, second = new_topic(), new_topic()
    options = {"outputTopics": f"{first},{second}", "deliveryGuarantee": "at-least-once"}
    with pytest.raises(AttemptsExhausted, match=f"topic '{first}' was deleted") as failed:
        write(two_topics(first, second), appended=lambda: either_kafka.delete_topic(first), **options)
    assert failed.value.committed == "acknowledged"


def test_the_ledgers_topic_that_is_created_again_right_before_the_commit_has_the_entry_nevertheless(
    new_topic, write, consumed, created_again
):
    topic, kept = new_topic(), new_topic()
    options = {"topic": topic, "ledgerTopic": kept, "kafka.transactional.id": f"kept-{topic}"}
    created_again(kept, "offsets committed")
    assert write({"value": [b"1"]}, **options).outcome == "committed"
    assert write({"value": [b"1"]}, **options).outcome == "skipped"
    assert consumed(topic) == [b"1"]
