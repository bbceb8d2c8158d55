"""The timeline of a batch on a real broker, in both protocols, with requests that are refused and a lost response."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.testing import Proxy
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, reads

OF_TV1 = ["AddPartitionsToTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "AddOffsetsToTxn"]


@pytest.fixture
def commit(either_kafka, record_batch):
    """`commit(rules)`: batch 0 through a proxy with these rules; its report."""

    def run(*rules):
        topic = either_kafka.create_topic(f"trace-{time.monotonic_ns()}", 2)
        with Proxy(either_kafka.bootstrap, rules) as proxy:
            options = sink_options(
                {
                    "kafka.bootstrap.servers": proxy.bootstrap,
                    "kafka.transactional.id": f"id-{topic}",
                    "topic": topic,
                    "kafka.request.timeout.ms": 2_000,
                }
            )
            with Cluster(options.client) as cluster:
                transaction = SharedTransaction(options, cluster, decide_micro_batch(options))

                def write(identity):
                    blocks = [(TopicPartition(topic, n), 1, record_batch(identity, 0, [b"v"])) for n in (0, 1)]
                    acks = append(cluster, identity, blocks, partitions=[tp for tp, _, _ in blocks])
                    return Appended(partitions=2, records=len(acks), bytes=0, milliseconds={"encode": 1.0})

                source = {TopicPartition(topic, 0): 0}
                batch = MicroBatch(query_id="q", batch_id=0, digest="d", sources=reads(source, source))
                return commit_batch(transaction, batch, write, max_attempts=2, choice=BY_DRIVER)

    return run


def test_every_request_of_a_batch_is_in_its_trace_with_its_retries(commit, either_kafka, request):
    report = commit(
        "InitProducerId:1-3:error=CONCURRENT_TRANSACTIONS",
        "TxnOffsetCommit:1:error=NOT_COORDINATOR",
        "EndTxn:1:cut-response",
    )
    assert report.outcome == "committed"
    # The broker itself may ask for more of them.
    assert report.retries >= Counter({"CONCURRENT_TRANSACTIONS": 3, "NOT_COORDINATOR": 1, "no response": 1})
    assert list(report.milliseconds) == ["begin", "encode", "offsets", "end"]
    by_api = {rpc.first.api: rpc for rpc in report.trace.rpcs()}
    assert by_api["InitProducerId"].retries.total() >= 3
    assert report.milliseconds["begin"] > by_api["InitProducerId"].milliseconds
    assert by_api["EndTxn"].first.about == "commit"
    sent = [rpc.first.api for rpc in report.trace.rpcs()]
    assert {"connect", "ApiVersions", "Metadata", "FindCoordinator", "OffsetFetch", "Produce", "EndTxn"} <= set(sent)
    assert sent.count("TxnOffsetCommit") == 2
    assert sent.index("InitProducerId") < sent.index("Produce") < sent.index("TxnOffsetCommit") < sent.index("EndTxn")
    old = [api for api in sent if api in OF_TV1]
    assert sorted(old) == (sorted(OF_TV1) if "TV1" in request.node.name else [])
    phases = report.trace.phases
    assert [phase.name for phase in phases] == ["begin", "offsets", "end"]
    inside = [each for each in report.trace.requests if each.api == "EndTxn"]
    assert all(phases[-1].start <= each.start for each in inside)


def test_a_batch_that_is_redone_has_both_attempts_in_its_trace(commit):
    report = commit("TxnOffsetCommit:1:error=TRANSACTION_ABORTABLE")
    assert len(report.redone) == 1
    assert [phase.name for phase in report.trace.phases] == ["begin", "offsets", "abort", "begin", "offsets", "end"]
    assert [rpc.first.about for rpc in report.trace.rpcs() if rpc.first.api == "EndTxn"] == ["abort", "commit"]
