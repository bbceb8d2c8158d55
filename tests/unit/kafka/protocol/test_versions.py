"""Which version of an API is spoken."""

from __future__ import annotations

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kafka.protocol.api_key import ApiKey

from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.kafka.protocol.versions import RANGES, choose, lacking, transactional


@pytest.mark.parametrize(
    ("api", "offered", "newest", "expected"),
    [
        ("InitProducerId", (0, 6), None, 5),  # 6 is unstable
        ("InitProducerId", (0, 4), None, 4),
        ("Produce", (3, 13), None, 12),
        ("Produce", (3, 13), 11, 11),
        ("Produce", (0, 9), 11, 9),
        ("Fetch", (4, 18), None, 16),
        ("OffsetFetch", (1, 10), None, 7),
    ],
)
def test_the_newest_version_both_sides_know_is_spoken(api, offered, newest, expected):
    assert choose(api, offered, newest=newest) == expected


def test_an_unstable_version_is_only_spoken_if_it_is_asked_for():
    assert choose("InitProducerId", (0, 6), exactly=6) == 6
    with pytest.raises(BrokerError, match="versions 6 to 6 are required, but the broker supports versions 0 to 5"):
        choose("InitProducerId", (0, 5), exactly=6)


@pytest.mark.parametrize(
    ("offered", "said"),
    [(None, "does not support it"), ((0, 11), "supports versions 0 to 11"), ((17, 20), "17 to 20")],
)
def test_a_broker_without_a_common_version_is_refused_with_both_ranges(offered, said):
    with pytest.raises(BrokerError, match=f"Fetch: versions 13 to 16 are required, but the broker .*{said}"):
        choose("Fetch", offered)


def test_what_a_broker_lacks_is_listed_with_what_it_offers_instead():
    all_of_them = {ApiKey[api].value: versions for api, versions in RANGES.items()}
    assert lacking(all_of_them) == {}
    fewer = all_of_them | {ApiKey.Fetch.value: (4, 11)}
    del fewer[ApiKey.EndTxn.value]
    assert lacking(fewer) == {"EndTxn": "not offered", "Fetch": "versions 4 to 11 offered, 13 to 16 needed"}


@pytest.mark.parametrize(("api", "tv1", "tv2"), [("Produce", 11, 12), ("TxnOffsetCommit", 4, 5), ("EndTxn", 4, 5)])
def test_the_two_transaction_protocols_never_share_a_version(api, tv1, tv2):
    assert [transactional(api, version) for version in (0, 1, 2)] == [tv1, tv1, tv2]


@pytest.mark.parametrize("api", RANGES)
def test_the_generated_classes_know_every_version_we_speak(api):
    modules = (
        kafka.protocol.admin,
        kafka.protocol.consumer,
        kafka.protocol.metadata,
        kafka.protocol.producer,
        kafka.protocol.sasl,
    )
    (request,) = {getattr(module, f"{api}Request") for module in modules if hasattr(module, f"{api}Request")}
    oldest, newest = RANGES[api]
    assert request.min_version <= oldest <= newest <= request.max_version
