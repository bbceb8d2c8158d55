"""What brokers lack is said before the first batch: from what they offer, and by a scratch transaction."""

from __future__ import annotations

import itertools
import json

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.appending.append import append
from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import PreflightFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.groups import GroupCoordinator
from spark_kafka_eos.kafka.protocol.offsets import latest
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.abilities import TRANSACTION_APIS
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.preflight.probe import probe
from spark_kafka_eos.preflight.rights import Right
from spark_kafka_eos.preflight.run import examine_source, preflight
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.tools.cli import main as cli
from spark_kafka_eos.tools.operators.open_transactions import oldest_open
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.idempotent import AtLeastOnceProducer
from tests.batches import BY_DRIVER
from tests.coordinating import TransactionCoordinator
from tests.principals import add_user
from tests.reading import await_stable

pytestmark = pytest.mark.broker

numbers = itertools.count(1)
TRANSACTIONS = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")


@pytest.fixture
def topic(either_kafka):
    return either_kafka.create_topic(f"probe-{next(numbers)}", 2)


def sink(bootstrap, topic, **more):
    return sink_options(
        {"kafka.bootstrap.servers": bootstrap, "kafka.transactional.id": f"id-{topic}", "topic": topic} | more
    )


def run(bootstrap, topic, *more):
    given = ["--bootstrap-servers", bootstrap, "--transactional-id", f"id-{topic}", "--topic", topic, *more, "--json"]
    done = CliRunner().invoke(cli.app, ["preflight", *given])
    return done.exit_code, {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_the_probe_leaves_nothing_that_can_be_read_and_does_not_disturb_the_running_query(
    either_kafka, cluster, topic, record_batch, consumed
):
    query = TransactionCoordinator(cluster, f"id-{topic}", 60_000)
    identity, out = query.init_producer_id(), TopicPartition(topic, 1)
    append(cluster, identity, [(out, 1, record_batch(None, 0, [b"of the query"]))])
    exit_code, found = run(either_kafka.bootstrap, topic, "--probe")
    assert exit_code == 0, found
    said = found["scratch transaction"]
    assert (said["severity"], "InitProducerId, " in said["found"]) == ("ok", True)
    assert ("both protocols" in said["found"]) == (cluster.transaction_version() >= 2)
    assert set(oldest_open(cluster, [TopicPartition(topic, 0), out], now_ms=0)) == {out}
    query.end(identity, commit=True)
    await_stable(either_kafka.bootstrap, topic)
    assert consumed(topic, 1) == [b"of the query"]
    assert consumed(topic, 0, "read_uncommitted") == []
    assert latest(cluster, [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1}, "the marker of the abort"
    assert GroupCoordinator(cluster, f"id-{topic}.probe").fetch_all(require_stable=True) == {}


def test_brokers_that_offer_no_transactions_are_refused_with_everything_that_is_missing(either_kafka, topic):
    with Proxy(either_kafka.bootstrap, lacking=TRANSACTIONS) as proxy:
        exit_code, found = run(proxy.bootstrap, topic, "--probe")
        options = sink(proxy.bootstrap, topic)
        with Cluster(options.client) as cluster, pytest.raises(PreflightFailed, match="the brokers lack AddPartitions"):
            preflight(cluster, options)
    assert exit_code == 1
    assert list(found) == ["APIs"], "nothing that would depend on them was asked"
    assert found["APIs"]["found"] == f"the brokers lack {', '.join(TRANSACTIONS)}"


def test_at_least_once_needs_no_transactions(either_kafka, topic, record_batch, consumed):
    with Proxy(either_kafka.bootstrap, lacking=TRANSACTIONS) as proxy:
        options = sink_options(
            {"kafka.bootstrap.servers": proxy.bootstrap, "topic": topic, "deliveryGuarantee": "at-least-once"}
        )
        with Cluster(options.client) as cluster:
            preflight(cluster, options)

            def write(identity):
                append(cluster, identity, [(TopicPartition(topic, 0), 1, record_batch(None, 0, [b"it"]))])
                return Appended(partitions=1, records=1, bytes=2)

            batch = MicroBatch(query_id="q", batch_id=0, digest="")
            commit_batch(AtLeastOnceProducer(options, cluster), batch, write, max_attempts=1, choice=BY_DRIVER)
    assert consumed(topic) == [b"it"]


def test_what_only_shows_more_is_missed_with_a_warning(either_kafka, topic):
    with Proxy(either_kafka.bootstrap, lacking=["DescribeGroups", "DescribeProducers", "CreateTopics"]) as proxy:
        exit_code, found = run(proxy.bootstrap, topic)
    assert exit_code == 0
    assert found[f"group id-{topic}"]["found"] == "could not be checked: the brokers lack DescribeGroups"
    assert found["APIs"]["severity"] == "warning"


def test_a_source_that_cannot_be_fetched_from_is_refused(either_kafka, topic):
    with (
        Proxy(either_kafka.bootstrap, lacking=["Fetch"]) as proxy,
        Cluster(sink(proxy.bootstrap, topic).client) as cluster,
    ):
        (found,) = examine_source(cluster, [topic])
    assert (found.severity, found.found) == (Severity.ERROR, "the brokers lack Fetch")


@pytest.mark.parametrize("refused", ["InitProducerId", "TxnOffsetCommit", "EndTxn"])
def test_brokers_that_offer_an_api_and_refuse_it_are_found_by_the_probe(either_kafka, topic, refused):
    assert refused in TRANSACTION_APIS
    with Proxy(either_kafka.bootstrap, [f"{refused}:*:error=UNSUPPORTED_VERSION"]) as proxy:
        assert run(proxy.bootstrap, topic)[0] == 0, "what is offered looks well"
        exit_code, found = run(proxy.bootstrap, topic, "--probe")
    assert exit_code == 1
    said = found["scratch transaction"]["found"]
    assert said.startswith(f"{refused} failed: {refused} answered UNSUPPORTED_VERSION (35)")
    before = "nothing was accepted" if refused == "InitProducerId" else "accepted before: InitProducerId"
    assert before in said


def test_rights_that_only_the_probe_needs_are_a_warning(secured):
    name = f"probe-{next(numbers)}"
    out = secured.kafka.create_topic(name, 1)
    add_user(secured.kafka.bootstrap, name, "secret", [Right("Write", "topic", out)])
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    login |= {"kafka.sasl.username": name, "kafka.sasl.password": "secret"}
    options = sink(secured.kafka.bootstrap_of("SASL_PLAINTEXT"), out, **login)
    found = probe(options)
    assert found.severity is Severity.WARNING
    assert f"Write on the transactional id id-{out}.probe" in found.action
    assert f"Read on the group id-{out}.probe" in found.action
