"""Two-phase commit (KIP-939): a transaction in which a table takes part has no timeout, on brokers that offer it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, PreflightFailed
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.preflight.run import preflight
from spark_kafka_eos.testing import EmbeddedKafka
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.operators.open_transactions import survey
from tests.broker.conftest import options_of
from tests.broker.table_scene import Scene
from tests.coordinating import TransactionCoordinator
from tests.kafka_tools import tool

pytestmark = pytest.mark.broker

ENABLED = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def either_kafka():
    """A broker on which the feature is enabled; the fixtures of the package use it."""
    with EmbeddedKafka(config=ENABLED) as kafka:
        yield kafka


def transactions(scene, *words):
    """What `kafka-eos transactions …` says of the scene's transaction, and its exit code."""
    command = ["transactions", *words, f"id-{scene.topic}", "--bootstrap-servers", scene.kafka.bootstrap]
    done = CliRunner().invoke(app, command)
    return done.exit_code, " ".join(done.output.split())


def test_what_a_dead_driver_prepared_is_committed_however_late_and_never_appended_again(
    scene, cluster, await_state, tmp_path, consumed
):
    scene.write(scene.driver(timeout_ms=None), 0)
    scene.killed(1, "table committed", timeout_ms=None)
    (folder := tmp_path / "clock").mkdir()
    usual = Scene(scene.kafka, cluster, folder, consumed)  # the same, later, with a timeout of a second
    usual.killed(0, "table committed", timeout_ms=1_000)
    await_state(f"id-{usual.topic}", "CompleteAbort")
    code, said = transactions(scene, "describe")
    assert (code, "Ongoing" in said, "none (two-phase commit)" in said) == (0, True, True), said
    report = scene.write(scene.driver(timeout_ms=None), 1, "next")
    assert report.outcome == "skipped"
    scene.both_have(0, 1)


def test_what_a_dead_driver_did_not_prepare_is_written_anew(scene):
    scene.killed(0, "half appended", timeout_ms=None)
    assert scene.write(scene.driver(timeout_ms=None), 0, "next").outcome == "committed"
    scene.both_have(0)


def test_a_query_may_go_on_without_the_feature_and_with_it_again(scene):
    scene.killed(0, "table committed", timeout_ms=None)
    assert scene.write(scene.driver(), 0, "second").outcome == "skipped"
    assert scene.write(scene.driver(), 1, "second").outcome == "committed"
    assert scene.write(scene.driver(timeout_ms=None), 2, "third").outcome == "committed"
    scene.both_have(0, 1, 2)


def test_an_operator_hears_that_nobody_aborts_it_and_can_take_the_id(scene, await_state):
    scene.killed(0, "half appended", timeout_ms=None)
    code, said = transactions(scene, "abort", "--yes")
    assert (code, "never aborts it by itself" in said) == (1, True), said
    code, said = transactions(scene, "abort", "--yes", "--fence-owner")
    assert code == 0, said
    await_state(f"id-{scene.topic}", "Empty")
    assert scene.write(scene.driver(timeout_ms=None), 0, "next").outcome == "committed"
    scene.both_have(0)


def sink(kafka):
    return sink_options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "kafka.transactional.id": "refused",
            "topic": kafka.create_topic("refused"),
            "twoPhaseCommit": "true",
        }
    )


@pytest.mark.parametrize(
    ("config", "error", "found"),
    [
        pytest.param({}, BrokerError, "do not offer version 6 of InitProducerId", id="no version"),
        pytest.param(
            {"unstable.api.versions.enable": "true"},
            AuthorizationFailed,
            "transaction.two.phase.commit.enable is false",
            id="not enabled",
        ),
    ],
)
def test_brokers_without_the_feature_are_named_by_the_preflight_and_by_the_error(
    tmp_path, consumed, config, error, found
):
    with EmbeddedKafka(config=config) as kafka, Cluster(options_of(kafka.bootstrap)) as cluster:
        with pytest.raises(PreflightFailed, match=found):
            preflight(cluster, sink(kafka))
        scene = Scene(kafka, cluster, tmp_path, consumed)
        with pytest.raises(error, match="twoPhaseCommit needs transaction.two.phase.commit.enable=true"):
            scene.write(scene.driver(timeout_ms=None), 0)


def test_without_the_right_nothing_is_begun_and_with_it_the_transaction_has_no_timeout():
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="hunter2";'
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    sasl = {"sasl.enabled.mechanisms": "PLAIN", "plain.sasl.jaas.config": login}
    with EmbeddedKafka(config=ENABLED | config, listeners={"SASL_PLAINTEXT": sasl}) as kafka:

        def grant(operation):
            acl = ["--add", "--allow-principal", "User:bob", "--transactional-id", "bobs", "--operation", operation]
            tool("AclCommand", "--bootstrap-server", kafka.bootstrap, *acl)

        bob = {
            "kafka.bootstrap.servers": kafka.bootstrap_of("SASL_PLAINTEXT"),
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.username": "bob",
            "kafka.sasl.password": "hunter2",
        }
        client = sink_options(bob | {"kafka.transactional.id": "bobs", "topic": "any"}).client
        with Cluster(client) as cluster, Cluster(options_of(kafka.bootstrap)) as superuser:
            grant("Write")
            with pytest.raises(AuthorizationFailed, match="TwoPhaseCommit besides Write") as refused:
                TransactionCoordinator(cluster, "bobs", None).init_producer_id()
            assert "hunter2" not in str(refused.value)
            assert survey(superuser, now_ms=0, all_ids=True).transactions == {}
            grant("TwoPhaseCommit")
            identity = TransactionCoordinator(cluster, "bobs", None).init_producer_id()
            assert identity.epoch == 0
            assert not survey(superuser, now_ms=0, all_ids=True).transactions["bobs"].times_out
