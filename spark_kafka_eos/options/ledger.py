"""Options that locate a sink's ledger, so that a source can start where the sink's transactions ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.client import ClientOptions, client_options
from spark_kafka_eos.options.table import SINK, take

LEDGER_TOPIC = "kafka-eos-ledger"

LEDGER_GROUP = ".ledger"  # after the transactional.id: the group that holds the pointer, and nothing else

PREFIX = "sink."
_GIVEN = "sink.kafka.transactional.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLedger:
    """The ledger entry of `transactional_id`, in `topic` on the cluster that `client` connects to."""

    client: ClientOptions
    transactional_id: str
    topic: str


def split(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Splits a source's options into its own and those of its sink (`sink.…`), without the prefix."""
    own = {name: value for name, value in options.items() if not name.lower().startswith(PREFIX)}
    sink = {name[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    return own, sink


def sink_ledger(options: Mapping[str, object], own: ClientOptions) -> SinkLedger | None:
    """Build from a sink's options; None if there are none. Without brokers, the sink is on the source's `own` cluster.

    Raises ConfigurationError with the name of the wrong option.
    """
    if not options:
        return None
    parsed = take(options, SINK)
    if "transactional_id" not in parsed:
        raise ConfigurationError(_GIVEN, "is required if other sink.… options are set")
    return SinkLedger(
        client=client_options(parsed) if "bootstrap_servers" in parsed else own,
        transactional_id=str(parsed["transactional_id"]),
        topic=str(parsed.get("ledger_topic", LEDGER_TOPIC)),
    )
