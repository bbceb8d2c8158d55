"""The faults that a seed draws for the drivers of a real run."""

from __future__ import annotations

import random

import pytest

from lab.real_runs.faults import KINDS, draw
from lab.real_runs.record import kept_in
from spark_kafka_eos.failpoints import POINTS
from spark_kafka_eos.testing.proxy import Proxy
from spark_kafka_eos.testing.proxy_rules import parse_rule


@pytest.fixture(scope="module")
def drawn():
    return [draw(random.Random(seed), 2) for seed in range(500)]


def test_every_kind_is_drawn(drawn):
    assert {fault.kind for fault in drawn} == set(KINDS)


def test_each_fault_is_at_a_failpoint_at_a_request_or_at_a_time(drawn):
    for fault in drawn:
        rule = fault.rule("driver-1")
        assert [bool(fault.point), rule is not None, fault.after_s > 0].count(True) == 1, fault
        assert fault.point in ("", *POINTS)
        if rule is not None:
            assert parse_rule(rule).client == "driver-1"


@pytest.mark.parametrize("version", [1, 2])
def test_the_proxy_takes_each_rule(version):
    rules = [draw(random.Random(seed), version).rule("driver-1") for seed in range(1_000)]
    with Proxy() as proxy:
        for rule in filter(None, rules):
            proxy.add(rule)


def test_only_tv1_adds_partitions_to_a_transaction():
    asked = {version: {draw(random.Random(seed), version).request[0] for seed in range(500)} for version in (1, 2)}
    assert asked[1] - asked[2] == {"AddPartitionsToTxn", "AddOffsetsToTxn"}


@pytest.mark.parametrize(
    ("group", "partition"),
    # The first two as a broker showed it in WriteTxnMarkers; the hash of the last one is Java's smallest number.
    [("run-1", 15), ("run-1.ledger", 8), ("polygenelubricants", 0)],
)
def test_a_group_is_in_the_partition_that_javas_hash_says(group, partition):
    assert kept_in(group, 16) == partition
