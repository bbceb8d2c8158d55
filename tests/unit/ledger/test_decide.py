"""How a batch write is known: by what the job says of itself, or else by its run."""

from __future__ import annotations

import pytest

from spark_kafka_eos.ledger.decide import batch_write, destination_of
from spark_kafka_eos.options import sink_options

GIVEN = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id"}


@pytest.mark.parametrize("version", [0, 1, 20240501])
def test_a_write_with_a_version_is_known_by_it_its_application_and_where_it_goes(version: int) -> None:
    write = batch_write("app", version, run="r", destination="out")
    assert (write.query_id, write.batch_id, write.run_id, write.destination) == ("app", version, "r", "out")
    others = [
        batch_write("app", version + 1, run="r", destination="out"),
        batch_write("another", version, run="r", destination="out"),
        batch_write("app", version, run="r", destination="other"),
    ]
    assert write.digest not in {other.digest for other in others}
    assert write.digest == batch_write("app", version, run="s", destination="out").digest


def test_a_write_without_a_version_is_known_by_its_run_and_keeps_no_ledger_of_where_it_goes() -> None:
    write = batch_write(None, None, run="r", destination="out")
    assert (write.query_id, write.batch_id, write.run_id, write.destination) == ("r", 0, "r", "")


@pytest.mark.parametrize(
    ("options", "destination"),
    [
        ({"topic": "out"}, "out"),
        ({"outputTopics": "b,a"}, "a,b"),
        ({}, "*x,y"),
        ({"deadLetterTopic": "y"}, "*x"),
    ],
)
def test_a_write_goes_where_its_options_say_or_else_its_rows(options: dict[str, str], destination: str) -> None:
    assert destination_of(sink_options(GIVEN | options), ["y", "x"]) == destination
