"""The ACLs that a query needs, by its options, and the arguments of kafka-acls.sh that grant them. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import BUCKETS, groups, internal_topics, ledger_topics, written_topics


class Right(NamedTuple):
    """An ACL that allows `operation` on one resource, or on all whose names begin with `name` (`pattern` "prefixed").
    `operation`, `resource` and `pattern` in Kafka's words.
    """

    operation: str
    resource: str
    name: str
    pattern: str = "literal"

    def __str__(self) -> str:
        begins = "" if self.pattern == "literal" else f"{self.pattern} "
        return f"{self.operation} on {begins}{self.resource} {self.name!r}"


def of_source(topics: Iterable[str]) -> list[Right]:
    """What reading `topics` needs. Their offsets can be committed only by who may read them."""
    return [Right("Read", "topic", topic) for topic in topics]


def of_sink(options: SinkOptions, *, real_time: bool = False) -> list[Right]:
    """What a sink needs besides `of_source`, if its source is on the same cluster; `real_time` also for its buckets.
    IdempotentWrite is not among it: since Kafka 2.8, Write on a topic includes it.
    """
    operations = ("Write", "TwoPhaseCommit") if options.two_phase_commit else ("Write",)
    transactional_id = options.transactional_id
    return [
        *(Right(operation, "transactional id", transactional_id) for operation in operations if transactional_id),
        *([of_buckets(options)] if real_time else []),
        *(Right("Write", "topic", topic) for topic in written_topics(options)),
        *(Right(operation, "topic", topic) for topic in ledger_topics(options) for operation in ("Write", "Read")),
        *(Right("Read", "group", group) for group in groups(options)),
    ]


def of_buckets(options: SinkOptions) -> Right:
    """What the transactions of a query in real time need, however many buckets it has."""
    return Right("Write", "transactional id", f"{options.transactional_id}{BUCKETS}", "prefixed")


def optional(options: SinkOptions) -> list[Right]:
    """What a sink can do without: it then does not create its ledger topic, waits where others have transactions open
    in its topics (`transaction.hanging`), and the preflight checks less.
    """
    internal = internal_topics(options)
    return [
        *(Right("Create", "topic", topic) for topic in ledger_topics(options)),
        *(Right("Read", "topic", topic) for topic in written_topics(options) if options.transactional_id),
        *(Right("Describe", "topic", topic) for topic in internal),
        *(
            Right("DescribeConfigs", "topic", topic)
            for topic in (*written_topics(options), *ledger_topics(options), *internal)
        ),
        *(_of_transactions(options.transactional_id) if options.transactional_id else ()),
    ]


def _of_transactions(transactional_id: str) -> list[Right]:
    probe = probe_id(transactional_id)
    return [
        Right("DescribeConfigs", "cluster", "kafka-cluster"),
        Right("Write", "transactional id", probe),
        Right("Read", "group", probe),
    ]


def probe_id(transactional_id: str) -> str:
    """The transactional id and the group of the scratch transaction of `preflight --probe`."""
    return f"{transactional_id}.probe"


def commands(rights: Sequence[Right]) -> list[str]:
    """The arguments of kafka-acls.sh that grant `rights`: a command for all resources with the same operations."""
    operations: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        granted = operations.setdefault((right.resource, right.name, right.pattern), [])
        granted += [right.operation] if right.operation not in granted else []
    resources: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (kind, name, pattern), granted in operations.items():
        named = ["--cluster"] if kind == "cluster" else [f"--{kind.replace(' ', '-')}", shlex.quote(name)]
        resources.setdefault((pattern, tuple(sorted(granted))), []).extend(named)
    return [
        " ".join([*_pattern(pattern), *(f"--operation {operation}" for operation in granted), *named])
        for (pattern, granted), named in resources.items()
    ]


def _pattern(pattern: str) -> list[str]:
    return [] if pattern == "literal" else [f"--resource-pattern-type {pattern}"]
