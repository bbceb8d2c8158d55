"""`kafka-eos transactions hanging`: what its exit code says."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import ProducerState
from spark_kafka_eos.tools.cli import transactions
from spark_kafka_eos.tools.operators.survey import Survey
from tests.model_kafka import KafkaModel

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
assert transactions.ANSWER_MS == 5_000, "as docs/transactions.md says"
TOPIC_NOT_ALLOWED = 29
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
    monkeypatch.setattr(transactions, "topics_left_out", lambda _: ())
    for arguments in (["hanging"], ["hanging", "--json"]):
        done = CliRunner().invoke(transactions.transactions, arguments)
        assert done.exit_code == code, done.output


@pytest.mark.parametrize(
    ("denied", "said"),
    [
        (lambda _: True, "brokers leave out topics that this principal may not describe"),
        (lambda name: name == "__transaction_state", "this principal lacks Describe on topic __transaction_state"),
    ],
    ids=["not every topic is named", "an internal one may not be described"],
)
def test_that_nothing_hangs_is_not_said_where_topics_may_be_left_out(monkeypatch, denied, said):
    """Metadata of all topics lacks those without an error, so one that nobody has is asked for."""
    kafka = KafkaModel(topics={"orders": 1})

    def described(request, answer):
        response = answer()
        for topic in response.topics if request.topics else ():
            topic.error_code = TOPIC_NOT_ALLOWED if topic.name != "orders" and denied(topic.name) else topic.error_code
        return response

    kafka.meets["Metadata"] = described
    monkeypatch.setattr(transactions, "_cluster", lambda *_: kafka.cluster())
    monkeypatch.setattr(transactions, "survey", lambda *_, **__: Survey(taken_ms=0, producers={T0: ()}, complete=True))
    for command, code in (("hanging", 3), ("counts", 0)):
        for flags in ([], ["--json"]):
            done = CliRunner().invoke(transactions.transactions, [command, *flags])
            assert (done.exit_code, said in " ".join(done.output.split())) == (code, True), done.output
        named = CliRunner().invoke(transactions.transactions, [command, "--topic", "orders"])
        assert (named.exit_code, said in named.output) == (0, False)
