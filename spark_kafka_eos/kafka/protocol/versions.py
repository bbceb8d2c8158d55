"""Chooses the version of each API: the broker's newest, within the versions that this package supports.

Brokers distinguish TV1 and TV2 (the feature `transaction.version`, KIP-890) only by these versions, so a transaction
must not mix them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka.protocol.api_key import ApiKey

from spark_kafka_eos.kafka.errors import BrokerError
from spark_kafka_eos.kafka.protocol.codes import ErrorCode

# API -> (oldest, newest). Oldest: Kafka 3.1 (Fetch by topic id, KIP-516). Why not a newer version: FindCoordinator 4
# and OffsetFetch 8 only add batching; InitProducerId 6 is unstable, so it has to be asked for; Produce 13 needs topic
# ids; DescribeGroups 6 returns an error for a group that does not exist.
RANGES: Mapping[str, tuple[int, int]] = {
    "ApiVersions": (0, 3),
    "SaslHandshake": (1, 1),
    "SaslAuthenticate": (0, 2),
    "Metadata": (10, 12),
    "FindCoordinator": (3, 3),
    "InitProducerId": (3, 5),
    "AddPartitionsToTxn": (3, 3),
    "AddOffsetsToTxn": (3, 3),
    "TxnOffsetCommit": (3, 5),
    "EndTxn": (3, 5),
    "OffsetFetch": (7, 7),
    "OffsetCommit": (8, 8),
    "Produce": (9, 12),
    "Fetch": (13, 16),
    "ListOffsets": (6, 7),
    "OffsetForLeaderEpoch": (3, 4),
    "CreateTopics": (5, 7),
    "DescribeConfigs": (4, 4),
    "DescribeProducers": (0, 0),
    "DescribeTransactions": (0, 0),
    "DescribeGroups": (5, 5),
    "ListGroups": (4, 5),
    "ListTransactions": (0, 0),
    "WriteTxnMarkers": (1, 1),
}

# The newest versions for a client of TV1; TV2 needs the newest of `RANGES`.
TV1_NEWEST: Mapping[str, int] = {"Produce": 11, "TxnOffsetCommit": 4, "EndTxn": 4}


def choose(api: str, offered: tuple[int, int] | None, *, newest: int | None = None, exactly: int | None = None) -> int:
    """The version for `api` when the broker offers (oldest, newest); `newest` limits it, `exactly` is the only one.

    Raises BrokerError if there is none.
    """
    oldest, ours = RANGES[api] if exactly is None else (exactly, exactly)
    top = ours if newest is None else min(ours, newest)
    if offered is not None and max(oldest, offered[0]) <= min(top, offered[1]):
        return min(top, offered[1])
    support = "does not support it" if offered is None else f"supports versions {offered[0]} to {offered[1]}"
    raise BrokerError(
        "ApiVersions",
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_VERSION.name,
        f"{api}: versions {oldest} to {top} are required, but the broker {support}",
        action="Upgrade the brokers to Kafka 3.3 or later.",
    )


def offers(offered: Mapping[int, tuple[int, int]], api: str, version: int) -> bool:
    """Whether a broker with these ranges, by API key, has this version of `api`."""
    oldest, newest = offered.get(ApiKey[api].value, (0, -1))
    return oldest <= version <= newest


def lacking(offered: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    """The APIs of `RANGES` that a broker with these ranges, by API key, does not offer, and what it offers instead."""
    missing = {}
    for api, (oldest, newest) in RANGES.items():
        theirs = offered.get(ApiKey[api].value)
        if theirs is None:
            missing[api] = "not offered"
        elif max(oldest, theirs[0]) > min(newest, theirs[1]):
            missing[api] = f"versions {theirs[0]} to {theirs[1]} offered, {oldest} to {newest} needed"
    return missing


def transactional(api: str, transaction_version: int) -> int:
    """The newest version of `api` that a client with this `transaction.version` may use."""
    return RANGES[api][1] if transaction_version >= 2 else TV1_NEWEST[api]
