"""The model's transaction coordinator: what each protocol does with ends that come twice, late or for nothing."""

from __future__ import annotations

import itertools

import pytest

from lab.simulation.coordinator import Coordinator, Phase
from spark_kafka_eos.kafka.partitions import TopicPartition

OUT = TopicPartition("out", 0)


class Kafka:
    """A coordinator whose markers are written when `mark` is called."""

    def __init__(self, version):
        ids = itertools.count(1)
        self.version = version
        self.decided: list[tuple[bool, int, int]] = []
        self.coordinator = Coordinator(
            server_version=version,
            new_id=lambda: next(ids),
            decided=lambda commit, id_, of_records, epoch, joined: self.decided.append((commit, of_records, epoch)),
        )

    def init(self, held=(-1, -1)):
        return self.coordinator.init(held[0], held[1], 60_000)

    def open(self, at):
        return self.coordinator.add(at[0], at[1], [OUT])

    def end(self, at, commit):
        return self.coordinator.end(at[0], at[1], commit, self.version)

    def mark(self):
        self.coordinator.completed()


@pytest.fixture(params=[1, 2], ids=["TV1", "TV2"])
def kafka(request):
    return Kafka(request.param)


def test_a_commit_that_is_repeated_is_not_an_error_and_does_not_raise_the_epoch(kafka):
    _, at = kafka.init()
    kafka.open(at)
    first = kafka.end(at, True)
    assert first == (0, (1, 0 if kafka.version < 2 else 1))
    assert kafka.end(at, True) == (51, (-1, -1))  # until the markers are written
    kafka.mark()
    assert kafka.end(at, True) == first
    assert kafka.end(at, False) == (48, (-1, -1))
    assert [commit for commit, _, _ in kafka.decided] == [True]


def test_a_late_abort_ends_the_next_transaction_of_its_epoch_in_tv1_alone(kafka):
    """KAFKA-17754."""
    _, at = kafka.init()
    kafka.open(at)
    _, following = kafka.end(at, True)
    kafka.mark()
    assert kafka.open(following) == 0
    code, _ = kafka.end(at, False)
    assert (code, kafka.coordinator.phase) == ((0, Phase.PREPARE_ABORT) if kafka.version < 2 else (90, Phase.ONGOING))


def test_a_newcomer_aborts_what_is_open_and_fences_its_owner(kafka):
    _, at = kafka.init()
    kafka.open(at)
    assert kafka.init() == (51, (-1, -1))
    kafka.mark()
    assert kafka.init() == (0, (1, 2))
    assert kafka.open(at) == 90
    assert kafka.end(at, True) == (90, (-1, -1))
    assert kafka.init(at) == (90, (-1, -1))
    assert kafka.decided == [(False, 0, 1)]


def test_an_owner_whose_transaction_timed_out_continues_in_tv2_and_is_fenced_in_tv1(kafka):
    _, at = kafka.init()
    kafka.open(at)
    kafka.coordinator.time_out()
    kafka.mark()
    goes_on = kafka.version >= 2
    assert kafka.end(at, False) == ((0, (1, 1)) if goes_on else (90, (-1, -1)))
    assert kafka.init(at) == ((0, (1, 1)) if goes_on else (90, (-1, -1)))


def test_initialising_with_the_epoch_before_is_a_resend(kafka):
    _, at = kafka.init()
    once = kafka.init(at)
    assert once == (0, (1, 1))
    assert kafka.init(at) == once
    assert kafka.init(once[1]) == (0, (1, 2))


def test_the_last_epoch_of_a_producer_id_is_followed_by_the_first_of_another(kafka):
    _, at = kafka.init()
    kafka.coordinator.epoch = 32_766
    at = (at[0], 32_766)
    kafka.open(at)
    code, following = kafka.end(at, True)
    kafka.mark()
    assert code == 0
    if kafka.version < 2:
        assert kafka.init(at) == (0, (2, 0))
    else:
        assert following == (2, 0)
        assert kafka.end(at, True) == (0, (2, 0))


def test_an_owner_that_was_fenced_with_the_last_epoch_of_all_gets_no_other_and_a_newcomer_does(kafka):
    _, at = kafka.init()
    kafka.coordinator.epoch = 32_766
    at = (at[0], 32_766)
    kafka.open(at)
    assert kafka.init() == (51, (-1, -1))
    kafka.mark()
    assert kafka.coordinator.epoch == 32_767
    assert kafka.init(at) == (-1, (-1, -1))
    assert kafka.init() == (0, (2, 0))
