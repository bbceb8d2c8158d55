"""What a recording of real runs says of their requests."""

from __future__ import annotations

from lab.real_runs.record import given_up
from lab.simulation.record import Answer, Append, Arrived, Request, Requested, Step
from spark_kafka_eos.kafka.partitions import TopicPartition

OUT = TopicPartition("out", 0), TopicPartition("out", 1)


def produce(
    number: int, *rows: int, codes: tuple[int, ...] = (0, 0), driver: str = "one", epoch: int = 0
) -> list[Step]:
    """A request with a row for each partition, and its answer."""
    appends = tuple(Append(partition=tp, sequence=0, rows=((0, row),)) for tp, row in zip(OUT, rows, strict=False))
    request = Request(api="Produce", epoch=epoch, appends=appends)
    return [Requested(number, 0.0, driver, False, request), Arrived(number, 0.0, Answer(codes=codes[: len(rows)]))]


def test_a_request_that_is_sent_again_after_it_was_carried_out_had_been_given_up() -> None:
    assert given_up([*produce(1, 7), *produce(2, 7), *produce(3, 8)]) == {1}
    assert given_up([*produce(1, 7, 8, codes=(0, 7)), *produce(2, 7, 8)]) == {1}


def test_what_was_refused_is_sent_again_because_of_that() -> None:
    assert given_up([*produce(1, 7, codes=(6,)), *produce(2, 7)]) == frozenset()
    assert given_up([*produce(1, 7, 8, codes=(6, 0)), *produce(2, 7)]) == frozenset()


def test_the_same_content_in_another_epoch_or_of_another_driver_is_another_request() -> None:
    assert given_up([*produce(1, 7), *produce(2, 7, epoch=1), *produce(3, 7, driver="other")]) == frozenset()
