"""The embedded broker's properties: what depends on the number of nodes, and who has the last word."""

from collections.abc import Mapping
from pathlib import Path

from spark_kafka_eos.testing.kraft import Listeners, render, server_properties

PORTS = {
    "PLAINTEXT": {1: 20001, 2: 20002, 3: 20003},
    "SASL_SSL": {1: 22001, 2: 22002, 3: 22003},
    "CONTROLLER": {1: 21001, 2: 21002, 3: 21003},
}
NONE: dict[str, Mapping[str, object]] = {}


def properties(
    nodes: int, node: int = 1, listeners: Listeners = NONE, config: Mapping[str, object] = NONE
) -> dict[str, str]:
    ports = {
        name: {n: port for n, port in by_node.items() if n <= nodes}
        for name, by_node in PORTS.items()
        if name in ("PLAINTEXT", *listeners, "CONTROLLER")
    }
    return server_properties(node, ports=ports, data=Path("/data"), config=config, listeners=listeners)


def test_a_node_listens_on_its_own_ports_and_knows_every_voter():
    second = properties(3, node=2)
    assert second["listeners"] == "PLAINTEXT://127.0.0.1:20002,CONTROLLER://127.0.0.1:21002"
    assert second["controller.quorum.voters"] == "1@127.0.0.1:21001,2@127.0.0.1:21002,3@127.0.0.1:21003"


def test_a_single_broker_replicates_nothing_and_three_survive_the_loss_of_one():
    one, three = properties(1), properties(3)
    for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
        assert (one[f"{topic}.replication.factor"], three[f"{topic}.replication.factor"]) == ("1", "3")
    assert (one["transaction.state.log.min.isr"], three["transaction.state.log.min.isr"]) == ("1", "2")
    assert (one["min.insync.replicas"], three["min.insync.replicas"]) == ("1", "2")


def test_a_further_listener_has_its_own_port_and_properties():
    secured = properties(1, listeners={"SASL_SSL": {"sasl.enabled.mechanisms": "PLAIN"}})
    assert secured["listeners"] == (
        "PLAINTEXT://127.0.0.1:20001,SASL_SSL://127.0.0.1:22001,CONTROLLER://127.0.0.1:21001"
    )
    assert secured["listener.name.sasl_ssl.sasl.enabled.mechanisms"] == "PLAIN"


def test_the_callers_configuration_has_the_last_word():
    assert properties(1, config={"min.insync.replicas": 2})["min.insync.replicas"] == "2"


def test_a_backslash_survives_javas_properties_syntax():
    assert render({"log.dirs": "C:\\data", "a": "b"}) == "log.dirs=C:\\\\data\na=b\n"
