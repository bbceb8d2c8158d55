"""What TransactionalWriter refuses before it looks at the batch."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.participants.participant import Held
from spark_kafka_eos.spark.writer import TransactionalWriter


class Table:
    def held(self) -> Held:
        return Held()

    def commit(self, rows: object, token: str | None, *, after: int) -> None: ...


def test_a_list_of_participants_is_refused() -> None:
    writer = TransactionalWriter({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "out"})
    no_batch: Any = None
    several: Any = [Table(), Table()]
    with (
        pytest.raises(ConfigurationError, match="one table takes part"),
        writer.transaction(no_batch, 0, participant=several),
    ):
        pytest.fail("the block ran")
