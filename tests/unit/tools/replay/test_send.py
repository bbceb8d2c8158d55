"""What a replay encodes: the planned dead letters, each once, and no other; its streams are anybody's words."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pyarrow as pa
import pytest

from spark_kafka_eos.appending.blocks import Target
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.dead_letters.signature import MAC, signature
from spark_kafka_eos.errors import ConfigurationError, DataLoss, InvalidRow, LedgerRefused, ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import TopicLimits
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.encode import encode
from spark_kafka_eos.kafka.wire.record_batch import scan
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.tools.replay import plan, send
from spark_kafka_eos.tools.replay.plan import REPLAYS, Stream, replayed_headers
from spark_kafka_eos.tools.replay.stored import StoredLetter, letters, ranges_of
from tests.letters import headers_of
from tests.model_kafka import KafkaModel

DEAD = TopicPartition("dead", 0)
OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "outputTopics": "in"})


def stored(offset: int) -> StoredLetter:
    letter = DeadLetter(cause="undecodable", topic="in", partition=0, offset=offset)
    return StoredLetter(
        partition=DEAD, offset=offset, timestamp=0, letter=letter, key=None, value=b"%d" % offset, headers=[]
    )


@pytest.mark.parametrize("planned", [[3], [*range(99)], [*range(100)], [*range(101)], [*range(0, 250, 2)]])
def test_each_planned_dead_letter_is_encoded_once_and_no_other(monkeypatch, planned):
    encoded: list[list[bytes]] = []

    class Encoder:
        def __init__(self, *_: Any) -> None: ...

        def add(self, rows: Any) -> list[Any]:
            encoded.append(rows.column("value").to_pylist())
            return []

        def finish(self) -> list[Any]:
            return []

    ranges: list[tuple[TopicPartition, int, int]] = []

    def letters(_: Cluster, wanted: Any) -> Any:
        ranges.extend((each.partition, each.start, each.end) for each in wanted)
        return map(stored, range(300))

    class Known:
        def topic(self, _: str) -> Any:
            return type("Topic", (), {"partitions": [0]})

    monkeypatch.setattr(send, "BlockEncoder", Encoder)
    monkeypatch.setattr(send, "encode_settings", lambda *_: None)
    monkeypatch.setattr(send, "letters", letters)
    write = send._Write(cast("Cluster", Known()), OPTIONS, 0, [(DEAD, offset) for offset in planned], None, None)
    assert [*write._blocks()] == []
    assert [value for rows in encoded for value in rows] == [b"%d" % offset for offset in planned]
    assert max(map(len, encoded)) <= 100, "a dead letter may be as large as a request"
    assert ranges == [(DEAD, planned[0], planned[-1] + 1)], "and what nobody wants is not read"


# Against the model of Kafka


GIVEN = {"kafka.bootstrap.servers": "b:1"}


@pytest.fixture
def kafka(monkeypatch):
    monkeypatch.setattr(send, "preflight", lambda *_: None)  # asks more than the model answers
    return KafkaModel(2, {"dead": 2, "in": 1, "clean": 1})


def put_aside(
    kafka: KafkaModel,
    *those: DeadLetter,
    partition: int = 0,
    key: str = "",
    at: int = 0,
    back: Sequence[str] | None = None,
    number: int | None = None,
    large: int = 0,
) -> None:
    """Dead letters with these headers, signed with a key; their values count from where the partition ends. `at`: in
    ms since 1970. `back`: they were replayed once before, with these keys. `number`: somebody else wrote such a number
    of replays. `large`: bytes of a value.
    """
    log = kafka.partitions[DEAD._replace(partition=partition)]
    for letter in those:
        value = (b"%d-%d" % (partition, log.end_offset)).ljust(large, b".")
        own = [] if back is None else replayed_headers([], back, b"k", value)
        own += [] if number is None else [(REPLAYS, b"%d" % number)]
        own += headers_of(letter)
        own += [(MAC, signature(key, b"k", value, own))] if key else []
        headers = pa.array(
            [[{"key": name, "value": each} for name, each in own]],
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        )
        batch = encode(pa.array([b"k"]), pa.array([value]), at, headers)
        log.append_plain((value,), batch=bytes(batch))


def of(cause: str = "undecodable", **more: Any) -> DeadLetter:
    known: dict[str, Any] = {"cause": cause, "topic": "in", "partition": 0, "offset": 1}
    return DeadLetter(**(known | more))


def sent(kafka: KafkaModel, topic: str = "in") -> list[tuple[bytes, bytes | None]]:
    """The values in the topic, each with how often it was replayed."""
    found = []
    for entry in kafka.partitions[TopicPartition(topic, 0)].committed():
        columns = decode(entry.batch, scan(entry.batch), include_headers=True)
        for value, headers in zip(columns["value"].to_pylist(), columns["headers"].to_pylist(), strict=True):
            counts = [each["value"] for each in headers if each["key"] == REPLAYS]
            found.append((value, counts[-1] if counts else None))
    return found


def times(kafka: KafkaModel, topic: str) -> list[int]:
    """The timestamps in the topic."""
    entries = kafka.partitions[TopicPartition(topic, 0)].committed()
    return [each for entry in entries for each in decode(entry.batch, scan(entry.batch))["timestamp"].to_pylist()]


def planned(kafka: KafkaModel, *, keys: str = "", **more: Any) -> send.ReplayPlan:
    given = GIVEN | ({"ledgerKey": keys} if keys else {})
    return send.plan(kafka.cluster(), "dead", given, "replay", **more)


def replay(kafka: KafkaModel, keys: str, **more: Any) -> tuple[list[bytes], int, int]:
    """The values that a replay with these keys sends; how many it leaves as not signed, and as of another key."""
    before, plan = len(sent(kafka)), planned(kafka, keys=keys, **more)
    send.run(kafka.cluster(), plan, more.get("to"))
    return [value for value, _ in sent(kafka)[before:]], plan.left_as("unsigned"), plan.left_as("other key")


def test_what_is_planned_is_sent_once_however_often_it_is_planned(kafka):
    put_aside(kafka, of(), of("too-large", output_topic="clean"), of())
    put_aside(kafka, of(), partition=1)
    one = planned(kafka)
    assert (one.records, one.destinations, one.skipped) == (4, ["clean", "in"], {})
    told: list[int] = []
    assert send.run(kafka.cluster(), one, progress=told.append) == 4
    assert sum(told) == 4
    assert sorted(sent(kafka)) == [(b"0-0", b"1"), (b"0-2", b"1"), (b"1-0", b"1")]
    assert sent(kafka, "clean") == [(b"0-1", b"1")]
    again = planned(kafka)
    assert (again.records, send.run(kafka.cluster(), again)) == (0, 0)
    put_aside(kafka, of())
    assert send.run(kafka.cluster(), planned(kafka)) == 1
    assert len(sent(kafka)) == 4


def test_only_the_selected_causes_are_sent_and_the_others_wait(kafka):
    put_aside(kafka, of(), of("too-large", output_topic="clean"))
    assert send.run(kafka.cluster(), planned(kafka, causes=["too-large"])) == 1
    assert (len(sent(kafka)), len(sent(kafka, "clean"))) == (0, 1)
    assert send.run(kafka.cluster(), planned(kafka)) == 1
    assert (len(sent(kafka)), len(sent(kafka, "clean"))) == (1, 1)


def test_what_is_put_aside_while_a_replay_runs_waits_for_the_next_one(kafka):
    put_aside(kafka, of())
    one = planned(kafka)
    put_aside(kafka, of())
    assert send.run(kafka.cluster(), one) == 1
    assert sent(kafka) == [(b"0-0", b"1")]
    assert send.run(kafka.cluster(), planned(kafka)) == 1
    assert sent(kafka) == [(b"0-0", b"1"), (b"0-1", b"1")]


def test_a_large_stream_is_sent_in_several_transactions(kafka, monkeypatch):
    monkeypatch.setattr(send, "BATCH", 2)
    put_aside(kafka, *[of()] * 5)
    assert send.run(kafka.cluster(), planned(kafka)) == 5
    assert len(kafka.sent("EndTxn")) == 3
    assert [value for value, _ in sent(kafka)] == [b"0-%d" % number for number in range(5)]
    assert planned(kafka).records == 0


@pytest.mark.parametrize(
    ("letter", "to", "why"),
    [
        (of(topic="dead"), None, "1 of the dead letters would be sent to dead itself, the first at dead-0@1"),
        (of("other", topic=None), None, "it is unknown where 1 of the dead letters belong, the first at dead-0@1"),
        (of(topic="__consumer_offsets"), None, "would be sent to __consumer_offsets, which"),
        (of(topic="kafka-eos-ledger"), None, "would be sent to kafka-eos-ledger, which"),
        (of(topic="alias"), None, "would be sent to alias, which"),
        (of(), "dead", "2 of the dead letters would be sent to dead itself, the first at dead-0@0"),
    ],
)
def test_nothing_is_sent_if_one_of_them_may_not_go_where_it_says(kafka, letter, to, why):
    kafka.topics.create("kafka-eos-ledger", 1)
    kafka.topics.create("alias", 1)
    kafka.topics._ids["alias"] = kafka.topics._ids["kafka-eos-ledger"]  # as a gateway may show it
    put_aside(kafka, of(), letter)
    with pytest.raises(ToolFailed, match=why) as refused:
        planned(kafka, to=to)
    assert "nothing was sent" in str(refused.value)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (of(topic="dead"), "2 of the dead letters would be sent to dead itself, the first at dead-0@0"),
        (of(topic=None), "it is unknown where 2 of the dead letters belong, the first at dead-0@0"),
        (of(topic="kafka-eos-ledger"), "2 of the dead letters would be sent to kafka-eos-ledger, .*first at dead-0@0"),
    ],
)
def test_of_several_that_may_not_go_where_they_say_the_first_destination_is_named_and_counted(kafka, first, why):
    kafka.topics.create("kafka-eos-ledger", 1)
    put_aside(kafka, first, of(topic="__consumer_offsets"), first, of(topic="__transaction_state"))
    with pytest.raises(ToolFailed, match=why):
        planned(kafka)


@pytest.mark.parametrize("by", ["retention", "compaction"])
def test_if_dead_letters_are_deleted_while_they_are_replayed_none_is_sent_and_the_command_is_run_again(kafka, by):
    put_aside(kafka, *[of()] * 3)
    one, dead = planned(kafka), kafka.partitions[DEAD]
    if by == "retention":
        dead.start_offset = 1
    else:
        dead.log = dead.log[1:]
    with pytest.raises(DataLoss) as lost:
        send.run(kafka.cluster(), one)
    assert by == "retention" or "1 dead letters were deleted while they were replayed" in lost.value.what
    assert "again" in lost.value.action, "a command has no failOnDataLoss"
    assert sent(kafka) == []
    assert replay(kafka, "") == ([b"0-1", b"0-2"], 0, 0)


def test_a_dead_letter_has_the_time_at_which_it_was_put_aside(kafka):
    put_aside(kafka, of(), at=1_700_000_000_123)
    assert [each.timestamp for each in letters(kafka.cluster(), ranges_of(kafka.cluster(), "dead"))] == [
        1_700_000_000_123
    ]


def test_of_a_topic_that_was_created_again_since_it_was_planned_nothing_is_sent_and_the_next_plan_has_all(kafka):
    put_aside(kafka, of(), of())
    before = planned(kafka)
    kafka.topics.delete("dead")
    kafka.topics.create("dead", 2)
    put_aside(kafka, of("other"), of("other"))
    with pytest.raises(DataLoss, match="created again") as lost:
        send.run(kafka.cluster(), before)
    assert lost.value.action == "Run the command again: it takes what is there then."
    assert sent(kafka) == []
    assert replay(kafka, "") == ([b"0-0", b"0-1"], 0, 0)


def test_of_a_topic_that_was_created_again_while_it_is_planned_nothing_is_planned(kafka):
    put_aside(kafka, of())
    cluster = kafka.cluster()
    ranges = ranges_of(cluster, "dead")
    kafka.topics.delete("dead")
    kafka.topics.create("dead", 2)
    put_aside(kafka, of("other"))
    with pytest.raises(DataLoss, match="created again"):
        send.plan(cluster, "dead", GIVEN, "replay", ranges=ranges)


@pytest.mark.parametrize("how", ["deleted", "another"])
def test_what_the_ledger_turns_out_to_have_is_not_sent_again_and_not_counted(kafka, how):
    """Its pointer still says what was sent."""
    put_aside(kafka, of())
    assert send.run(kafka.cluster(), planned(kafka)) == 1
    more = {"ledgerTopic": "books"} if how == "another" else {}
    if how == "another":
        kafka.topics.create("books", 1)
    else:
        kafka.topics.delete("kafka-eos-ledger")
    again = send.plan(kafka.cluster(), "dead", GIVEN | more, "replay")
    assert (again.records, send.run(kafka.cluster(), again)) == (1, 0)
    put_aside(kafka, of())
    with pytest.raises(LedgerRefused) as refused:
        send.run(kafka.cluster(), send.plan(kafka.cluster(), "dead", GIVEN | more, "replay"))
    assert "ledgerTopic" in refused.value.action and "checkpoint" not in refused.value.action
    assert sent(kafka) == [(b"0-0", b"1")]


@pytest.mark.parametrize("option", [{"deliveryGuarantee": "at-least-once"}, {"twoPhaseCommit": "true"}])
def test_an_option_with_which_a_replay_is_not_exactly_once_is_refused_by_name(kafka, option):
    put_aside(kafka, of())
    with pytest.raises(ConfigurationError) as refused:
        send.plan(kafka.cluster(), "dead", GIVEN | option, "replay")
    assert [refused.value.option] == [*option]


def test_of_a_dead_letter_above_the_largest_request_it_is_said_how_a_replay_is_given_a_larger_one(kafka):
    put_aside(kafka, of(), large=2_000_000)
    with pytest.raises(InvalidRow) as refused:
        send.run(kafka.cluster(), planned(kafka))
    assert "--option kafka.max.request.size=" in refused.value.action
    assert sent(kafka) == []


def test_what_is_sent_back_has_its_own_time_where_its_topic_keeps_it(kafka, monkeypatch):
    targets = {"in": Target(partitions=1, limits=TopicLimits(max_message_bytes=1_000_000, retention_ms=1_000))}
    targets["clean"] = Target(partitions=1)
    monkeypatch.setattr(send, "target", lambda _, topic, __: targets[topic])
    monkeypatch.setattr(send, "_now", lambda: 10_000)
    put_aside(kafka, of(timestamp=9_500), of(timestamp=8_500), of())
    put_aside(kafka, of("too-large", output_topic="clean", output_timestamp=9_500))
    assert send.run(kafka.cluster(), planned(kafka)) == 4
    assert times(kafka, "in") == [9_500, 10_000, 10_000]
    assert times(kafka, "clean") == [10_000], "what it keeps is not known"


def test_what_was_replayed_too_often_stays(kafka):
    put_aside(kafka, of())
    assert planned(kafka, max_replays=0).skipped == {Stream("undecodable", 0): 1}
    assert planned(kafka, max_replays=0).records == 0
    assert planned(kafka, max_replays=1).records == 1


def test_more_streams_than_anybody_needs_are_refused(kafka, monkeypatch):
    monkeypatch.setattr(plan, "MOST_STREAMS", 2)
    put_aside(kafka, of("a"), of("b"), of("a"))
    assert planned(kafka).records == 3
    put_aside(kafka, of("c"))
    with pytest.raises(ToolFailed, match="name more than 2 causes; nothing was sent"):
        planned(kafka)


def test_under_the_id_of_another_topics_replay_nothing_is_sent(kafka):
    """It was taken for the topic's own from before it was created again, and everything was sent once more."""
    kafka.topics.create("other", 1)
    other = TopicPartition("other", 0)
    put_aside(kafka, of())
    assert send.run(kafka.cluster(), planned(kafka)) == 1
    kafka.partitions[other].append_plain((b"1",), batch=kafka.partitions[DEAD].committed()[0].batch)
    with pytest.raises(ToolFailed, match=r"'replay.undecodable.0' holds the progress of 'replay of dead \(") as refused:
        send.plan(kafka.cluster(), "other", GIVEN, "replay")
    assert "nothing was sent" in str(refused.value)
    assert "--transactional-id" in refused.value.action
    assert send.plan(kafka.cluster(), "other", GIVEN, "other.replay").records == 1


OLD, NEW = "an old key of many letters", "a new key of many letters"
BOTH = f"{NEW},{OLD}"


def test_what_was_sent_with_a_key_is_not_sent_again_without_it(kafka):
    put_aside(kafka, of(), key=OLD)
    assert replay(kafka, OLD) == ([b"0-0"], 0, 0)
    put_aside(kafka, of(), key=NEW)
    assert replay(kafka, NEW, to="in") == ([b"0-1"], 0, 1)
    assert replay(kafka, "", to="in") == ([], 0, 2)
    assert replay(kafka, BOTH, to="in") == ([], 0, 0)
    put_aside(kafka, of(), key=OLD)
    assert replay(kafka, BOTH) == ([b"0-2"], 0, 0)


def test_what_was_not_sent_for_want_of_its_key_is_sent_with_it(kafka):
    put_aside(kafka, of(), key=OLD)
    put_aside(kafka, of(), key=NEW)
    assert replay(kafka, NEW) == ([b"0-1"], 1, 0)
    assert replay(kafka, BOTH) == ([b"0-0"], 0, 0)
    assert replay(kafka, BOTH, to="in") == ([], 0, 0)


@pytest.mark.parametrize("keys", [NEW, ""])
def test_what_was_sent_by_name_without_its_key_is_not_sent_again_with_it(kafka, keys):
    put_aside(kafka, of(), key=OLD)
    assert replay(kafka, keys, to="in") == ([b"0-0"], 0, 0)
    put_aside(kafka, of(), key=OLD)
    if keys:
        assert replay(kafka, BOTH, to="in") == ([b"0-1"], 0, 0)
        assert replay(kafka, keys, to="in") == ([], 0, 1)
    else:
        with pytest.raises(LedgerRefused, match="not signed with ledgerKey"):
            planned(kafka, keys=BOTH)


def test_of_a_replay_by_name_what_is_signed_is_committed_first(kafka):
    """Else, had it ended in between, what its key verifies would be taken for sent by name."""
    put_aside(kafka, of(), key=OLD)
    put_aside(kafka, of(), of("a"), key=NEW)
    plan = planned(kafka, keys=NEW, to="in")
    assert [(bool(part.stream.key), part.stream.cause) for part in plan.parts] == [
        (True, "a"), (True, "undecodable"), (False, "undecodable")
    ]  # fmt: skip


def test_a_signature_that_nobody_believes_keeps_nothing_else_back(kafka):
    put_aside(kafka, of(), key=OLD)
    put_aside(kafka, of(), key=NEW)
    assert replay(kafka, NEW) == ([b"0-1"], 1, 0)
    assert planned(kafka, keys=NEW).believed == []
    forged = "a key of somebody else"
    put_aside(kafka, of(), key=forged)
    put_aside(kafka, of())
    put_aside(kafka, of(), key=NEW)
    assert replay(kafka, NEW) == ([b"0-4"], 3, 0)
    assert planned(kafka, keys=NEW, to="in").believed == ["in"]
    assert replay(kafka, NEW, to="in") == ([b"0-3", b"0-0", b"0-2"], 0, 0)


def test_progress_that_another_key_signed_is_refused_and_the_refusal_says_how_to_give_it(kafka):
    put_aside(kafka, of())
    assert replay(kafka, OLD, to="in") == ([b"0-0"], 0, 0)
    with pytest.raises(LedgerRefused, match="not signed with ledgerKey") as refused:
        planned(kafka, keys=NEW)
    assert "Nothing was sent" in refused.value.action and "ledgerKey=NEW,OLD" in refused.value.action
    assert replay(kafka, BOTH, to="in") == ([], 0, 0)


CAME_BACK = [  # with these keys it was sent back, it was signed with this one, and two replays had these
    (OLD, OLD, (BOTH, NEW)),
    (OLD, OLD, (NEW, BOTH)),
    (OLD, NEW, (NEW, BOTH)),
    (OLD, NEW, (BOTH, NEW)),
    (OLD, "", (NEW, BOTH)),
    ("", "", (NEW, "")),
    ("", "", (NEW, BOTH)),
    ("", NEW, (NEW, "")),
]


@pytest.mark.parametrize(("before", "key", "keys"), CAME_BACK)
def test_what_came_back_is_sent_once_whatever_keys_the_replays_have(kafka, before, key, keys):
    """Which number of replays it had, and so in which stream it was, depended on the keys."""
    put_aside(kafka, of(), key=key, back=[before] if before else [])
    assert [replay(kafka, each, to="in")[0] for each in keys] == [[b"0-0"], []]


def test_with_a_key_a_forged_number_alone_leaves_nothing(kafka):
    put_aside(kafka, of(), key=NEW, number=7)
    assert replay(kafka, NEW) == ([b"0-0"], 0, 0)
    assert sent(kafka) == [(b"0-0", b"1")]


def test_what_has_a_forged_number_waits_with_what_was_replayed_that_often(kafka):
    put_aside(kafka, of(), key=NEW, number=1)
    put_aside(kafka, of(), key=NEW, back=[NEW])
    put_aside(kafka, of(), key=NEW)
    left = planned(kafka, keys=NEW, max_replays=1)
    assert (left.records, [*left.skipped.values()]) == (1, [2])
    assert replay(kafka, NEW, max_replays=1)[0] == [b"0-2"]
    assert replay(kafka, NEW)[0] == [b"0-0", b"0-1"]


def test_where_what_was_replayed_too_often_would_go_stops_nothing(kafka):
    put_aside(kafka, of(topic="dead"), back=[])
    put_aside(kafka, of())
    assert replay(kafka, "", max_replays=1)[0] == [b"0-1"]


def as_the_earlier_version(monkeypatch) -> None:
    """Count as 0 a number that none of the given keys has signed."""

    def stream_of(cause, headers, secrets, key, value):
        stream = by_header(cause, headers, secrets, key, value)
        return stream if plan.is_number_signed(headers, secrets, key, value) else stream.never

    by_header = plan.stream_of
    monkeypatch.setattr(plan, "stream_of", stream_of)
    monkeypatch.setattr(plan, "run_id_of", lambda unique, **_: unique)


@pytest.mark.parametrize(("before", "key", "keys"), CAME_BACK)
def test_what_an_earlier_version_may_have_sent_is_left(kafka, monkeypatch, before, key, keys):
    put_aside(kafka, of(), key=key, back=[before] if before else [])
    with monkeypatch.context() as earlier:
        as_the_earlier_version(earlier)
        assert replay(kafka, keys[0], to="in")[0] == [b"0-0"]
    for each in (keys[1], keys[0], keys[1]):
        put_aside(kafka, of(), key=key)
        with suppress(LedgerRefused):  # signed progress follows no unsigned one
            replay(kafka, each, to="in")
    assert [value for value, _ in sent(kafka)].count(b"0-0") == 1


def test_what_is_in_doubt_stays_so_while_others_are_sent_and_those_that_come_back_later_are_not(kafka, monkeypatch):
    put_aside(kafka, of(), key=NEW, number=2)
    with monkeypatch.context() as earlier:
        as_the_earlier_version(earlier)
        assert replay(kafka, NEW)[0] == [b"0-0"]
    for number in (1, 2):
        put_aside(kafka, of(), key=NEW)
        doubtful = planned(kafka, keys=NEW)
        assert (doubtful.left_as("earlier version"), doubtful.doubtful) == (1, {"undecodable"})
        assert replay(kafka, NEW)[0] == [b"0-%d" % number]
    assert replay(kafka, "", max_replays=3)[0] == []
    put_aside(kafka, of(), key=NEW, back=[NEW])
    assert replay(kafka, NEW)[0] == [b"0-3"]


def test_what_this_version_leaves_as_replayed_too_often_is_in_no_doubt(kafka):
    put_aside(kafka, of(), back=[])
    put_aside(kafka, of())
    assert replay(kafka, "", max_replays=1)[0] == [b"0-1"]
    assert replay(kafka, "")[0] == [b"0-0"]
