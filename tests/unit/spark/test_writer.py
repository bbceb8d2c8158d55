"""When TransactionalWriter runs the preflight; what a batch does is tested on a broker (tests/spark)."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from spark_kafka_eos.core.append_mode import FIRST_BYTES_PER_OFFSET, Choice
from spark_kafka_eos.errors import PreflightFailed
from spark_kafka_eos.model import MicroBatch, TopicPartition
from spark_kafka_eos.spark import writer as module
from spark_kafka_eos.spark.writer import TransactionalWriter

ORDERS = TopicPartition("orders", 0)
FRAME = SimpleNamespace(sparkSession=None)
OPTIONS = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "topic": "a", "appendMode": "driver"}


@pytest.fixture
def steps(monkeypatch, tmp_path):
    """What a batch did, in order, with everything beyond the writer replaced."""
    taken = []

    def batch(number):
        return MicroBatch(query_id="q", batch_id=number, digest="", start={ORDERS: 0}, end={ORDERS: 10})

    def settle(owner, batch, write, **_):
        taken.append(f"batch {batch.batch_id}")
        return SimpleNamespace(outcome="committed", bytes=700)

    query = SimpleNamespace(checkpoint_location=str(tmp_path), micro_batch=batch)
    monkeypatch.setattr(module, "RunningQuery", lambda frame, location: query)
    monkeypatch.setattr(module, "shared_cluster", lambda options: "cluster")
    monkeypatch.setattr(module, "owner", lambda options, cluster, decide: "owner")
    monkeypatch.setattr(module, "preflight", lambda cluster, options: taken.append("preflight"))
    monkeypatch.setattr(module, "settle", settle)
    return taken


def run(writer, batch_id):
    with writer.transaction(FRAME, batch_id):
        pass


def test_the_preflight_runs_once_before_the_first_batch_whichever_that_is(steps):
    writer = TransactionalWriter(OPTIONS)
    run(writer, 7)
    run(writer, 8)
    assert steps == ["preflight", "batch 7", "batch 8"]


def test_a_batchs_size_is_reckoned_from_what_the_one_before_made_of_its_offsets(steps, monkeypatch):
    reckoned = []

    def choose(asked, session, batch, bytes_per_offset):
        reckoned.append(bytes_per_offset)
        return Choice(mode="driver", reason="")

    monkeypatch.setattr(module, "choose", choose)
    writer = TransactionalWriter(OPTIONS)
    run(writer, 0)
    run(writer, 1)
    assert reckoned == [FIRST_BYTES_PER_OFFSET, 70]


def test_a_writer_in_another_process_runs_it_again(steps):
    writer = TransactionalWriter(OPTIONS)
    run(writer, 0)
    run(pickle.loads(pickle.dumps(writer)), 1)
    assert steps == ["preflight", "batch 0", "preflight", "batch 1"]


def test_after_an_error_nothing_is_begun_and_the_next_try_looks_again(steps, monkeypatch):
    def fail(cluster, options):
        steps.append("failed")
        raise PreflightFailed("the preflight found 1 error")

    monkeypatch.setattr(module, "preflight", fail)
    writer = TransactionalWriter(OPTIONS)
    for _ in range(2):
        with pytest.raises(PreflightFailed):
            run(writer, 0)
    assert steps == ["failed", "failed"]
