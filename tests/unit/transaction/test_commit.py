"""Which committer a delivery guarantee and a table need, and what no committer does."""

from __future__ import annotations

from typing import Any, cast

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.participants.participant import Participant
from spark_kafka_eos.transaction.commit import committer
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.model_kafka import KafkaModel

TABLE = cast(Participant, object())  # nothing is asked of it


def made(table: Participant | None = None, **more: str) -> Any:
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"} | more)
    return committer(options, KafkaModel().cluster(), decide_micro_batch(options), participant=table)


@pytest.mark.parametrize(
    ("guarantee", "table", "kind"),
    [
        ("exactly-once", None, SharedTransaction),
        ("exactly-once", TABLE, SharedTransaction),
        ("at-least-once", None, AtLeastOnceProducer),
    ],
)
def test_each_guarantee_has_its_committer(guarantee, table, kind):
    committer = made(table, deliveryGuarantee=guarantee)
    assert type(committer) is kind
    assert getattr(committer, "participant", None) is table


def test_a_table_cannot_take_part_in_what_is_no_transaction():
    with pytest.raises(ConfigurationError, match="at-least-once has no transaction in which a table can take part"):
        made(TABLE, deliveryGuarantee="at-least-once")


def test_two_phase_commit_is_refused_where_no_table_takes_part():
    with pytest.raises(ConfigurationError, match="is for batches in which a table takes part"):
        made(twoPhaseCommit="true")
    assert made(TABLE, twoPhaseCommit="true").participant is TABLE
