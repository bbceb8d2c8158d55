"""`kafka-eos transactions hanging`: what its exit code says."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.tools.cli import transactions
from spark_kafka_eos.tools.operators.survey import Survey

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
assert transactions.ANSWER_MS == 5_000, "as docs/transactions.md says"
OPEN = {T0: (ProducerState(partition=T0, producer_id=9, epoch=4, start_offset=7),)}


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (Survey(taken_ms=0, producers={T0: ()}, complete=True), 0),
        (Survey(taken_ms=0, producers=OPEN, complete=True), 1),
        (Survey(taken_ms=0, producers=OPEN, complete=True, unavailable={T1: "no answer"}), 1),
        (Survey(taken_ms=0, producers={T0: ()}, complete=True, unavailable={T1: "no answer"}), 3),
        (Survey(taken_ms=0, producers=OPEN, complete=False), 3),
    ],
    ids=["nothing", "hangs", "hangs, and a partition is silent", "a partition is silent", "may hang"],
)
def test_hanging_says_by_its_exit_code_what_hangs_and_what_could_not_be_looked_at(monkeypatch, found, code):
    monkeypatch.setattr(transactions, "_cluster", lambda *_: nullcontext())
    monkeypatch.setattr(transactions, "partitions_of", lambda *_: [T0, T1])
    monkeypatch.setattr(transactions, "survey", lambda *_, **__: found)
    for arguments in (["hanging"], ["hanging", "--json"]):
        done = CliRunner().invoke(transactions.transactions, arguments)
        assert done.exit_code == code, done.output
