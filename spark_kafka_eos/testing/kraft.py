"""Builds the server.properties of the embedded broker: combined KRaft nodes on the loopback interface. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

INTERNAL, CONTROLLER = "PLAINTEXT", "CONTROLLER"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
Listeners = Mapping[str, Mapping[str, object]]  # security protocol -> the listener's own properties


def server_properties(
    node: int,
    *,
    ports: Mapping[str, Mapping[int, int]],
    data: Path,
    config: Mapping[str, object],
    listeners: Listeners,
) -> dict[str, str]:
    """One node's properties. `ports` are by listener and node.id, for every node; `config` overrides any property.

    A listener's name is its security protocol. `ports` always contains PLAINTEXT and CONTROLLER; `listeners` has the
    properties of the others, without the prefix `listener.name.<name>.`.
    """
    nodes = len(ports[INTERNAL])
    copies, in_sync = min(nodes, 3), min(nodes, 2)
    coordinators = 1 if nodes == 1 else nodes
    chosen: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        "broker.rack": f"rack-{node}",
        # Static voters: if a directory is used again on other ports, only these addresses change.
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in ports[CONTROLLER].items()),
        "controller.listener.names": CONTROLLER,
        "listener.security.protocol.map": ",".join([f"{CONTROLLER}:PLAINTEXT", *(f"{n}:{n}" for n in _PROTOCOLS)]),
        "listeners": ",".join(f"{name}://127.0.0.1:{by_node[node]}" for name, by_node in ports.items()),
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": coordinators,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": coordinators,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": coordinators,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,  # abort timed-out transactions promptly
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,  # a killed node can register again only after its session has expired
        "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,  # default: 128 MiB of the heap
    }
    for name, properties in listeners.items():
        chosen.update({f"listener.name.{name.lower()}.{key}": value for key, value in properties.items()})
    return {key: str(value) for key, value in {**chosen, **config}.items()}


def render(properties: Mapping[str, str]) -> str:
    """Java's .properties syntax: one `key=value` per line, with backslashes and line ends escaped."""
    escaped = ((key, value.replace("\\", "\\\\").replace("\n", "\\n")) for key, value in properties.items())
    return "".join(f"{key}={value}\n" for key, value in escaped)
