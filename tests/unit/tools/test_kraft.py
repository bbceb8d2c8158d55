"""The embedded broker's properties: what depends on the number of nodes, and who has the last word."""

from pathlib import Path

from spark_kafka_eos.tools.kraft import render, server_properties

PORTS, CONTROLLERS = {1: 20001, 2: 20002, 3: 20003}, {1: 21001, 2: 21002, 3: 21003}


def properties(nodes: int, node: int = 1, **config: object) -> dict[str, str]:
    wanted = range(1, nodes + 1)
    return server_properties(
        node,
        ports={n: PORTS[n] for n in wanted},
        controller_ports={n: CONTROLLERS[n] for n in wanted},
        data=Path("/data"),
        config=config,
    )


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


def test_the_callers_configuration_has_the_last_word():
    assert properties(1, **{"min.insync.replicas": 2, "message.max.bytes": 1000})["min.insync.replicas"] == "2"


def test_a_backslash_survives_javas_properties_syntax():
    assert render({"log.dirs": "C:\\data", "a": "b"}) == "log.dirs=C:\\\\data\na=b\n"
