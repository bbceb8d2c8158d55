"""Whether topics store message format 2 (Kafka 0.11), the first with room for producer ids and transactions. Pure.

A topic's `message.format.version` decides, by default the brokers' `log.message.format.version`, but only while their
`inter.broker.protocol.version` is below 3.0: above, brokers ignore both (KIP-724), and Kafka 4.0 has none of the three.

Sources: KIP-98, "Compatibility, Deprecation, and Migration Plan"; KIP-724; what a broker does
(`tests/broker/test_old_formats.py`): its own topic with the outcome of transactions may be in any format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from spark_kafka_eos.kafka.protocol.facts import Settings, TopicFacts, Unavailable
from spark_kafka_eos.kafka.reserved_topics import TRANSACTIONS_TOPIC
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import written_topics
from spark_kafka_eos.preflight.checks import Facts
from spark_kafka_eos.preflight.findings import Finding, Severity

_PROTOCOL, _DEFAULT, _FORMAT = "inter.broker.protocol.version", "log.message.format.version", "message.format.version"
BROKER_SETTINGS = (_PROTOCOL, _DEFAULT)
TOPIC_SETTINGS = (_FORMAT,)
_WITH_PRODUCER_IDS, _WITH_ONE_FORMAT = (0, 11), (3, 0)


def any_old(facts: Facts) -> bool:
    """Whether a topic is set to a format before 0.11, so that the brokers' settings matter."""
    return any(_is_old(_settings(topic).get(_FORMAT)) for topic in facts.topics.values())


def findings(facts: Facts, options: SinkOptions) -> Iterator[Finding]:
    """The topics that a batch could not be written to, by their format; nothing if the brokers have or tell none."""
    brokers = {} if isinstance(facts.settings, Unavailable) else facts.settings
    protocol = brokers.get(_PROTOCOL)
    if protocol is not None and not _before(protocol, _WITH_ONE_FORMAT):
        yield Finding(severity=Severity.OK, subject="message format", found=f"2, as {_PROTOCOL} is {protocol}")
        return
    outputs = written_topics(options)
    topics: dict[tuple[str, bool], list[str]] = {}
    for name in _needing_producer_ids(facts, options):
        if what := _old_format(facts.topics[name], brokers):
            topics.setdefault((what, name in outputs and options.enable_idempotence == "requested"), []).append(name)
    for (what, optional), names in topics.items():
        yield _finding(names, what, protocol, optional=optional)


def _needing_producer_ids(facts: Facts, options: SinkOptions) -> list[str]:
    if options.delivery_guarantee == "exactly-once":
        return [name for name in facts.topics if name != TRANSACTIONS_TOPIC]
    return [] if options.enable_idempotence == "off" else written_topics(options)


def _old_format(topic: TopicFacts | Unavailable | None, brokers: Settings) -> str:
    """What says that the topic has a format before 0.11, or will have when Kafka creates it; empty if nothing does."""
    if topic is None:
        default = brokers.get(_DEFAULT)
        return f"does not exist yet, and {_DEFAULT} is {default}" if _is_old(default) else ""
    version = _settings(topic).get(_FORMAT)
    return f"message.format.version is {version}" if _is_old(version) else ""


def _finding(names: Sequence[str], what: str, protocol: str | None, *, optional: bool) -> Finding:
    is_certain = protocol is not None
    consequence = (
        "Batches are written without idempotence: a request that is sent again may write its records twice"
        if optional
        else "Every batch would fail"
    )
    condition = "" if is_certain else f"This matters if the brokers' {_PROTOCOL}, which is not known, is below 3.0. "
    return Finding(
        severity=Severity.ERROR if is_certain and not optional else Severity.WARNING,
        subject=f"topic{'' if len(names) == 1 else 's'} {', '.join(names)}",
        found=f"{what}, with inter.broker.protocol.version {protocol}" if is_certain else what,
        meaning=f"{condition}Such a format has no room for producer ids and transactions. {consequence}",
        action=f"Set {_FORMAT} of the topic to 0.11.0 or later, or upgrade {_PROTOCOL} of all brokers to 3.0 or later",
    )


def _settings(topic: TopicFacts | Unavailable | None) -> Settings:
    if not isinstance(topic, TopicFacts) or isinstance(topic.settings, Unavailable):
        return {}
    return topic.settings


def _is_old(version: str | None) -> bool:
    return version is not None and _before(version, _WITH_PRODUCER_IDS)


def _before(version: str, release: tuple[int, int]) -> bool:
    """Whether a version as Kafka writes it ("0.10.2-IV0", "3.0-IV1", "2.8") is before the release."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < release
