"""What is asked for again while a broker starts."""

from __future__ import annotations

from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from spark_kafka_eos.testing import read_offsets


class Starting:
    """A consumer that raises these errors, one after the other, and then answers."""

    def __init__(self, *errors: int) -> None:
        self.errors, self.asked = list(errors), 0

    def committed(self, partitions: Any, timeout: float) -> Any:
        self.asked += 1
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        return partitions


def test_a_groups_offsets_are_asked_for_again_while_its_coordinator_starts():
    starting = Starting(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    asked = [TopicPartition("t", 0)]
    assert read_offsets._committed(cast(Consumer, starting), asked) == asked
    assert starting.asked == 3


def test_another_error_is_raised_at_once():
    denied = Starting(KafkaError.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        read_offsets._committed(cast(Consumer, denied), [])
    assert denied.asked == 1
