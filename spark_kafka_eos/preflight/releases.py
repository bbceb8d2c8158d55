"""Which release of Kafka a broker runs, as far as it says, and the known bugs of its transactions. Pure.

A broker does not report its version. It reports the newest metadata.version that it supports (KIP-584), which is the
same for all patch releases of a minor release. `docs/brokers.md` has the table of bugs.

Sources: org.apache.kafka.server.common.MetadataVersion; Kafka's issues, and for the releases with the fix the published
jars of 4.0.0 to 4.4.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_kafka_eos.kafka.protocol.facts import Abilities
from spark_kafka_eos.preflight.findings import Finding, Severity

# The newest metadata.version that each release supports.
_NEWEST_LEVEL = {
    "3.3": 7,
    "3.4": 8,
    "3.5": 11,
    "3.6": 14,
    "3.7": 19,
    "3.8": 20,
    "3.9": 21,
    "4.0": 25,
    "4.1": 27,
    "4.2": 29,
    "4.3": 30,
    "4.4": 33,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug of KIP-890's protocol in brokers: the releases that have it, the first ones without it, what happens."""

    issue: str
    releases: tuple[str, ...]
    affected: str
    fixed: str
    effect: str


# Those that a release without them fixes; the last one is 4.3.0.
BUGS = (
    Bug(
        issue="KAFKA-19367",
        releases=("4.0",),
        affected="4.0.0",
        fixed="4.0.1, 4.1.0",
        effect="A driver that starts while its predecessor's transaction is open may fail to take the transactional "
        "id, if that was the last epoch of a producer id, the 32,767th",
    ),
    Bug(
        issue="KAFKA-20090",
        releases=("4.0", "4.1", "4.2"),
        affected="4.0.0 to 4.2.1",
        fixed="4.3.0",
        effect="A transaction that times out or is fenced in the last epoch of a producer id may stay open: readers "
        "with read_committed wait for it",
    ),
    Bug(
        issue="KAFKA-20322",
        releases=("4.2",),
        affected="4.2.0",
        fixed="4.2.1",
        effect="While brokers are upgraded one by one from 4.1 or older, no transaction ends in a partition that an "
        "old broker leads",
    ),
)


def release_of(metadata_version: int | None) -> str | None:
    """The minor release ("4.2") whose newest metadata.version this is; None for newer ones, and for ZooKeeper's."""
    if metadata_version is None:
        return None
    return next((release for release, newest in _NEWEST_LEVEL.items() if metadata_version <= newest), None)


def findings(abilities: Abilities, transaction_version: int) -> Iterator[Finding]:
    """The release, with the bugs of its transactions that a later release does not have; nothing if it is unknown."""
    release = release_of(abilities.metadata_version)
    if release is None:
        return
    observation = f"{release}, according to the newest metadata.version that it supports, {abilities.metadata_version}"
    bugs = [bug for bug in BUGS if release in bug.releases and transaction_version >= 2]
    if not bugs:
        yield Finding(severity=Severity.OK, subject="Kafka release", found=observation)
        return
    yield Finding(
        severity=Severity.WARNING,
        subject="Kafka release",
        found=f"{observation}; brokers do not tell their patch release",
        meaning=". ".join(f"{bug.issue} (in {bug.affected}): {bug.effect}" for bug in bugs),
        action="Upgrade to Kafka 4.3 or later",
    )
