"""`kafka-eos exporter` on a real cluster: a query that is behind, and a transaction that somebody left open."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.tools.cli.exporter import exporter
from spark_kafka_eos.tools.operators.cluster_metrics import CLUSTER_METRICS, HANGING, LAG_SECONDS
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.interrupts import heeding_ctrl_c
from tests.producing import produce, transact

pytestmark = pytest.mark.broker

LEDGER, OLD = "exporter-books", 1_700_000_000_000
LABELS = {metric.name.removesuffix("_total"): set(metric.labels) for metric in CLUSTER_METRICS}
APP = typer.Typer()
APP.command()(exporter)


@pytest.fixture(scope="module")
def behind(kafka, topic):
    """A query whose source has unread records, and after them an open transaction: its transactional.id, the source,
    the output, and the id of that transaction.
    """
    kafka.create_topic(LEDGER, 1, {"cleanup.policy": "compact"})
    source, target = topic("exporter-in", 2, {"retention.ms": -1}), topic("exporter-out", 2)
    for partition in (0, 1):
        produce(kafka.bootstrap, source, [b"x"] * 150, partition=partition, timestamp=OLD)
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        query = Copy(kafka.bootstrap, cluster, source, target, options={"ledgerTopic": LEDGER})
        query.run(0, 0, 100)
        owner = transact(kafka.bootstrap, source, [b"y"] * 7, "leave open", transactional_id=f"{source}-open")
        yield query.options.transactional_id, source, target, f"{source}-open"
        owner.abort_transaction(30)


def once(bootstrap, *more):
    return CliRunner().invoke(APP, ["--bootstrap-servers", bootstrap, "--ledger-topic", LEDGER, "--once", *more])


def samples(text):
    """By name and labels: the transactional.id before the topic, the topic before the partition."""
    families = list(text_string_to_metric_families(text))
    assert all(sample.labels.keys() == LABELS[family.name] for family in families for sample in family.samples)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items(), reverse=True))): sample.value
        for family in families
        for sample in family.samples
    }


def test_one_scrape_shows_what_is_late_what_is_held_and_who_holds_it(kafka, behind):
    query, source, _, owner = behind
    result = once(kafka.bootstrap)
    assert (result.exit_code, result.stderr) == (0, "")
    found = samples(result.stdout)
    assert found["kafka_eos_cluster_up",] == 1
    assert found["kafka_eos_cluster_ledger_batch", query] == 0
    assert found["kafka_eos_cluster_commits_total", query] == 1
    assert found["kafka_eos_cluster_lag_offsets", query, source] == 100
    assert found["kafka_eos_cluster_lag_seconds", query, source] > 86_400
    assert found["kafka_eos_cluster_lost_offsets", query, source] == 0
    assert found["kafka_eos_cluster_last_stable_offset", source, "0"] == 150
    assert (found["kafka_eos_cluster_lso_lag_offsets", source, "0"]) == 7
    assert (found["kafka_eos_cluster_lso_lag_offsets", source, "1"]) == 0
    assert found["kafka_eos_cluster_producer_ids", source, "0"] >= 1
    assert found["kafka_eos_cluster_open_transactions", source, "0"] == 1
    assert found["kafka_eos_cluster_hanging_transactions", source, "0"] == 0
    assert found["kafka_eos_cluster_unjudged", source, "0"] == found["kafka_eos_cluster_silent_brokers",] == 0
    assert found["kafka_eos_cluster_open_transaction_age_seconds", owner] >= 0
    assert sum(value for (name, *_), value in found.items() if name == "kafka_eos_cluster_transactional_ids") >= 2
    assert {name for name, *_ in found} == {metric.name for metric in CLUSTER_METRICS}


def test_the_same_as_json_for_scripts(kafka, behind):
    query, source, *_ = behind
    shown = json.loads(once(kafka.bootstrap, "--json").stdout)
    assert {"name": LAG_SECONDS.name, "labels": {"transactional_id": query, "topic": source}}.items() <= next(
        each for each in shown if each["name"] == LAG_SECONDS.name
    ).items()


def test_what_the_query_writes_is_looked_at_and_what_anybody_has_open(kafka, behind, topic):
    target, elsewhere = behind[2], topic("exporter-elsewhere", 2)
    holder = transact(kafka.bootstrap, target, [b"y"] * 3, "leave open", transactional_id=f"{target}-open")
    other = transact(kafka.bootstrap, elsewhere, [b"z"], "leave open", transactional_id=f"{elsewhere}-open")
    try:
        found = samples(once(kafka.bootstrap).stdout)
        for name in (target, elsewhere):
            partitions = ("0", "1") if name == target else ("0",)
            assert sum(found["kafka_eos_cluster_open_transactions", name, each] for each in partitions) == 1
        assert sum(found["kafka_eos_cluster_lso_lag_offsets", target, each] for each in ("0", "1")) == 3
        assert (HANGING.name, target, "0") in found
    finally:
        holder.abort_transaction(30)
        other.abort_transaction(30)


def test_an_output_that_was_deleted_does_not_end_the_look(kafka, topic):
    source, target = topic("exporter-in", 2), topic("exporter-out", 2)
    for partition in (0, 1):
        produce(kafka.bootstrap, source, [b"x"] * 10, partition=partition)
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        Copy(kafka.bootstrap, cluster, source, target, options={"ledgerTopic": LEDGER}).run(0, 0, 10)
        kafka.delete_topic(target)
        result = once(kafka.bootstrap)
    assert samples(result.stdout)["kafka_eos_cluster_up",] == 1
    assert not [key for key in samples(result.stdout) if target in key]


def test_further_topics_are_looked_at_if_they_are_named(kafka, behind, topic):
    other = topic("exporter-other")
    assert (HANGING.name, other, "0") not in samples(once(kafka.bootstrap).stdout)
    assert samples(once(kafka.bootstrap, "--topic", other).stdout)[HANGING.name, other, "0"] == 0


def test_it_serves_until_it_is_interrupted(kafka, behind):
    query, *_ = behind
    command = "import typer; from spark_kafka_eos.tools.cli.exporter import exporter; typer.run(exporter)"
    arguments = ["--bootstrap-servers", kafka.bootstrap, "--ledger-topic", LEDGER, "--port", "0", "--interval", "1"]
    with heeding_ctrl_c():
        process = subprocess.Popen([sys.executable, "-c", command, *arguments], stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stderr is not None
            address = next(found[1] for line in process.stderr if (found := re.search(r"(http://\S+)", line)))
            assert address.startswith("http://127.0.0.1:")
            served: dict[tuple[str, ...], float] = {}
            while served.get(("kafka_eos_cluster_up",)) != 1:
                with urllib.request.urlopen(address) as response:
                    served = samples(response.read().decode())
            assert served["kafka_eos_cluster_ledger_batch", query] == 0
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130
