"""Where the ledger of a sink is kept, as a source names it that is to go on where the sink's transactions ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options.client import ClientOptions, client_options
from spark_kafka_eos.options.table import SINK, take

LEDGER_TOPIC = "kafka-eos-ledger"

PREFIX = "sink."
_GIVEN = "sink.kafka.transactional.id"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLedger:
    """The ledger's entry of `transactional_id` in `topic` of the cluster that `client` reaches."""

    client: ClientOptions
    transactional_id: str
    topic: str


def split(options: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """A source's own options, and those of its sink (`sink.…`) without their prefix."""
    own = {name: value for name, value in options.items() if not name.lower().startswith(PREFIX)}
    sink = {name[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    return own, sink


def sink_ledger(options: Mapping[str, object], own: ClientOptions) -> SinkLedger | None:
    """From a sink's options; where they name no brokers, the sink is on the source's `own` cluster. None for none.

    Raises ConfigurationError naming the option that is wrong.
    """
    if not options:
        return None
    found = take(options, SINK)
    if "transactional_id" not in found:
        raise ConfigurationError(_GIVEN, "is required beside other options of the sink")
    return SinkLedger(
        client=client_options(found) if "bootstrap_servers" in found else own,
        transactional_id=str(found["transactional_id"]),
        topic=str(found.get("ledger_topic", LEDGER_TOPIC)),
    )
