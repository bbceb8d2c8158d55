"""Upgrade and rollback, in both directions: what an older release finds of this one's ledger, and this one of theirs.

The rows of the table in docs/migrating.md. Each older release runs from its commit, in processes of its own.
"""

from __future__ import annotations

import itertools

import pytest

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from tests.broker.conftest import expire
from tests.letters import headers_of
from tests.producing import produce
from tests.reading import read_committed
from tests.releases import OLDER, Release, word
from tests.stepped import COMMITTED, SKIPPED, Query, new

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
FORM_1, RELEASE_0_2, BEFORE_FORM_3 = OLDER


def _each(releases):
    """The last one was never published, and has the form of the one before."""
    return pytest.mark.parametrize(
        "old",
        [pytest.param(old, id=old.name, marks=[pytest.mark.slow] * (old is BEFORE_FORM_3)) for old in releases],
    )


each_release, with_ledger_topic = _each(OLDER), _each([RELEASE_0_2, BEFORE_FORM_3])
# The old release's own word for a ledger that it does not know.
REFUSES = {
    1: "the ledger entry has format version 3, this release reads version 1",
    2: "it has format version 3, but this release supports versions up to 2",
}


@pytest.fixture
def query(kafka):
    return Query(kafka)


@each_release
def test_this_environment_is_what_the_older_release_depends_on(old):
    assert old.unmet() == []


def test_a_clone_without_the_history_fails_and_says_what_to_do():
    with pytest.raises(RuntimeError, match="need the repository's whole history"):
        Release(name="lost", commit="0" * 40, form=1).folder()


# -- upgrade


@each_release
def test_after_an_upgrade_a_committed_batch_is_skipped_and_the_next_one_goes_on(query, old):
    assert old.run(query.batch(0), query.batch(1)) == [COMMITTED, COMMITTED]
    assert query.committed() == 20
    assert new(query.batch(1), query.batch(2), query.batch(2)) == [SKIPPED, COMMITTED, SKIPPED]
    assert query.committed() == 30
    expire(query.kafka.bootstrap, query.name, f"{query.name}.ledger")
    assert new(query.batch(2), query.batch(3)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(40))


@each_release
def test_after_an_upgrade_a_lost_checkpoint_is_continued_from(query, old):
    assert old.run(query.batch(0)) == [COMMITTED]
    (found,) = new(query.starts())
    assert found == {"starts": {f"{query.source}-0": 10}}
    (refused,) = new(query.batch(0, "elsewhere", 0))
    assert "does not start where it ended" in refused["refused"]
    assert new(query.batch(0, "anew", 10), query.batch(1, "anew", 20)) == [COMMITTED, COMMITTED]
    assert query.written() == list(range(30))


# -- rollback


@each_release
@pytest.mark.parametrize("outputs", [1, 2], ids=["topic", "outputTopics"])
@pytest.mark.parametrize("commits", [1, 3], ids=["first commit", "later"])
def test_after_a_rollback_the_older_release_refuses_and_this_one_goes_on(kafka, old, outputs, commits):
    query = Query(kafka, outputs)
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(*(query.batch(number) for number in range(1, 1 + commits))) == [COMMITTED] * commits
    again, following = query.batch(commits), query.batch(commits + 1)
    for refused in old.run(again, following, query.batch(0, "with a new checkpoint", 0)):
        assert REFUSES[old.form] in refused["refused"]
    assert query.written() == list(range(10 + commits * 10))
    assert new(again, following) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(20 + commits * 10))


@each_release
def test_after_a_rollback_with_a_ledger_topic_of_its_own_the_older_release_refuses(kafka, old):
    books = f"rolled-books-{next(numbers)}"
    if old.form == 1:  # kept in the group, for a topic that somebody had created
        kafka.create_topic(books, 1, {"cleanup.policy": "compact"})
    query = Query(kafka, ledgerTopic=books)
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(0), query.batch(1)) == [SKIPPED, COMMITTED]
    for refused in old.run(query.batch(1), query.batch(2)):
        assert REFUSES[old.form] in refused["refused"]
    assert new(query.batch(2)) == [COMMITTED]
    assert query.written() == list(range(30))


@each_release
def test_after_a_rollback_with_another_ledger_topic_the_older_release_refuses_too(query, old):
    """As with the default again, after this release had one of its own."""
    books = f"rolled-books-{next(numbers)}"
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(1), query.batch(1, ledgerTopic=books), query.batch(2, ledgerTopic=books)) == [
        COMMITTED, SKIPPED, COMMITTED
    ]  # fmt: skip
    for refused in old.run(query.batch(2), query.batch(3)):
        assert REFUSES[old.form] in refused["refused"]
    assert query.written() == list(range(30))


@with_ledger_topic
def test_the_older_release_refuses_by_the_record_where_the_pointer_has_expired(query, old):
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(1)) == [COMMITTED]
    expire(query.kafka.bootstrap, query.name, f"{query.name}.ledger")
    for refused in old.run(query.batch(1), query.batch(0, "with a new checkpoint", 0)):
        assert REFUSES[2] in refused["refused"]
    assert query.written() == list(range(20))


@with_ledger_topic
def test_the_older_release_refuses_a_query_that_this_one_began(query, old):
    assert new(query.batch(0)) == [COMMITTED]
    for refused in old.run(query.batch(0), query.batch(1)):
        assert REFUSES[2] in refused["refused"]
    assert query.written() == list(range(10))


def test_0_1_finds_nothing_of_a_query_that_this_release_began_and_refuses_all_but_its_first_batch(query):
    assert new(query.batch(0)) == [COMMITTED]
    (refused,) = FORM_1.run(query.batch(1))
    assert "the ledger has no entry, but the checkpoint is at batch 1" in refused["refused"]
    assert FORM_1.run(query.batch(0)) == [COMMITTED]
    assert query.written() == sorted([*range(10)] * 2), "the row says so: its first batch is repeated"


@each_release
def test_a_rollback_that_was_refused_leaves_nothing_behind(query, old):
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(1)) == [COMMITTED]
    assert len([each for each in old.run(query.batch(1), query.batch(1)) if "refused" in each]) == 2
    expire(query.kafka.bootstrap, f"{query.name}.ledger")
    assert new(query.batch(1), query.batch(2)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(30))


# -- the way back for good, and forth again


@with_ledger_topic
def test_the_way_back_with_the_checkpoint_is_the_word_of_the_older_release(query, old):
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(1)) == [COMMITTED]
    (refused,) = old.run(query.batch(2))
    said = word(refused, "write")
    assert old.run(query.batch(2, resolve=said), query.batch(3, resolve=said), query.batch(3)) == [
        COMMITTED, COMMITTED, SKIPPED
    ]  # fmt: skip
    assert new(query.batch(3), query.batch(4)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(50))


@each_release
def test_the_way_back_with_another_id_and_checkpoint_starts_where_the_last_transaction_ended(query, old):
    assert old.run(query.batch(0)) == [COMMITTED]
    assert new(query.batch(1)) == [COMMITTED]
    (found,) = old.run(query.starts())
    assert found == {"starts": {f"{query.source}-0": 20}}
    other = {"kafka.transactional.id": f"{query.name}-back"}
    assert old.run(query.batch(0, "back", 20, **other), query.batch(1, "back", 30, **other)) == [COMMITTED, COMMITTED]
    assert new(query.batch(1, "back", 30, **other), query.batch(2, "back", 40, **other)) == [SKIPPED, COMMITTED]
    assert query.written() == list(range(50))


# -- batch writes and dead letters


@each_release
def test_a_batch_write_goes_on_after_an_upgrade_and_is_refused_after_a_rollback(query, old):
    def version(number):
        options = query.options | {"txnAppId": "monthly", "txnVersion": str(number)}
        return {"step": "write", "options": options, "range": [number * 10, number * 10 + 10]}

    assert old.run(version(1), version(2)) == [COMMITTED, COMMITTED]
    assert new(version(3)) == [COMMITTED]
    for refused in old.run(version(3), version(4)):
        assert REFUSES[old.form] in refused["refused"]
    assert new(version(4)) == [COMMITTED]
    assert query.written() == list(range(10, 50))


def test_a_replay_of_dead_letters_goes_on_after_an_upgrade_and_is_refused_after_a_rollback(kafka):
    number = next(numbers)
    dead, target = kafka.create_topic(f"rolled-dead-{number}"), kafka.create_topic(f"rolled-repaired-{number}")

    def put(count):
        where = {"topic": target, "partition": 0, "offset": next(numbers), "query_id": "q"}
        headers = headers_of(DeadLetter(cause=Cause.UNDECODABLE, **where))
        produce(kafka.bootstrap, dead, [b"x"] * count, headers=headers)

    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    replay = {"step": "replay", "options": options, "id": f"rolled-replay-{number}", "topic": dead}
    put(3)
    assert BEFORE_FORM_3.run(replay) == [{"sent": 3}]
    put(4)
    assert new(replay, replay) == [{"sent": 4}, {"sent": 0}]
    put(5)
    (refused,) = BEFORE_FORM_3.run(replay)
    assert REFUSES[2] in refused["refused"]
    assert new(replay) == [{"sent": 5}]
    assert len(read_committed(kafka.bootstrap, target)) == 12
