"""What a recording of real runs says of their requests."""

from __future__ import annotations

from lab.real_runs.record import given_up
from lab.simulation.record import Answer, Append, Arrived, Request, Requested, Step
from spark_kafka_eos.kafka.partitions import TopicPartition

OUT = TopicPartition("out", 0)


def produce(number: int, row: int, *, code: int = 0, driver: str = "driver 1", epoch: int = 0) -> list[Step]:
    """A request with one row, and its answer."""
    append = Append(partition=OUT, sequence=0, rows=((0, row),))
    request = Request(api="Produce", epoch=epoch, appends=(append,))
    return [Requested(number, 0.0, driver, False, request), Arrived(number, 0.0, Answer(codes=(code,)))]


def test_a_request_that_is_sent_again_after_it_was_carried_out_had_been_given_up() -> None:
    assert given_up([*produce(1, 7), *produce(2, 7), *produce(3, 8)]) == {1}


def test_a_request_that_was_refused_is_sent_again_because_of_that() -> None:
    assert given_up([*produce(1, 7, code=6), *produce(2, 7)]) == frozenset()


def test_the_same_content_in_another_epoch_or_of_another_driver_is_another_request() -> None:
    assert given_up([*produce(1, 7), *produce(2, 7, epoch=1), *produce(3, 7, driver="driver 2")]) == frozenset()
