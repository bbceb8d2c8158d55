"""Which of the sink's options have no effect on which write: a table of all of them."""

import logging
import re

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import WriteKind, sink_options, table
from spark_kafka_eos.options.table import OPTIONS, SINK
from spark_kafka_eos.options.unused import UNUSED

# stream, batch write, batch write with txnAppId, foreachBatch by the driver and by executors: what becomes of an option
# with exactly-once and with at-least-once. u: used, w: a warning, R: refused, x: does not go with this write.
DECIDED = """
                              exactly-once    at-least-once
    topic                     u u u u u       u u x u u
    outputTopics              u u u u u       u u x u u
    deadLetterTopic           u u u u u       u u x u u
    maxDeadLetters            u u u u u       u u x u u
    ledgerTopic               u w u u u       w w x w w
    ledgerKey                 u w u u u       w w x w w
    kafka.transactional.id    u u u u u       u u x u u
    deliveryGuarantee         u u u u u       u u x u u
    appendMode                R R R u u       R R x u u
    stagingDir                u u u u w       u u x u w
    maxAttempts               u u u u u       u u x u u
    preflight                 u u u u u       u u x u u
    logLevel                  u u u w w       u u x w w
    logFormat                 u u u u u       u u x u u
    traceDir                  u u u u u       u u x u u
    openTelemetry             u u u u u       u u x u u
    openTelemetryLinks        u u u u u       u u x u u
    partitioner               u u u u u       u u x u u
    takeOverQuery             u w w u u       w w x w w
    resolve                   u w u u u       w w x w w
    sourceClusters            u w w u u       u w x u u
    allowLoop                 u w w u u       u w x u u
    txnAppId                  R x u R R       R x R R R
    txnVersion                x x u x x       x x x x x
    checkpointLocation        u w w u u       u w x u u
    kafka.acks                u u u u u       u u x u u
    kafka.enable.idempotence  u u u u u       u u x u u
    kafka.retries             u u u u u       u u x u u
    kafka.max.in.flight.requests.per.connection  u u u u u  u u x u u
    kafka.compression.type    u u u u u       u u x u u
    kafka.max.request.size    u u u u u       u u x u u
    kafka.transaction.timeout.ms  u u u u u   w w x w w
    twoPhaseCommit            R R R u u       R R x R R
    kafka.group.id            u w w u u       u w x u u
    includeHeaders            w w w w w       w w x w w
    failOnDataLoss            u w w u u       u w x u u
"""
VALUES = {
    "ledgerKey": "a key of 16 letters",
    "deliveryGuarantee": "exactly-once",
    "appendMode": "executors",
    "maxAttempts": "2",
    "maxDeadLetters": "1000,1%",
    "preflight": "true",
    "allowLoop": "true",
    "logLevel": "info",
    "logFormat": "json",
    "openTelemetry": "true",
    "openTelemetryLinks": "8",
    "partitioner": "murmur2",
    "txnVersion": "1",
    "kafka.acks": "all",
    "kafka.enable.idempotence": "true",
    "kafka.retries": "1",
    "kafka.max.in.flight.requests.per.connection": "5",
    "kafka.compression.type": "none",
    "kafka.max.request.size": "1000000",
    "kafka.transaction.timeout.ms": "50000",
    "twoPhaseCommit": "true",
    "includeHeaders": "false",
    "failOnDataLoss": "true",
}
BASE = {"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t", "deadLetterTopic": "dead"}
WRITES = [
    (WriteKind.STREAM, {}),
    (WriteKind.BATCH, {}),
    (WriteKind.BATCH, {"txnAppId": "job", "txnVersion": "1"}),
    (WriteKind.FOREACH_BATCH, {"appendMode": "driver"}),
    (WriteKind.FOREACH_BATCH, {"appendMode": "executors"}),
]
ROWS = {
    name: marks.split()
    for name, marks in re.findall(r"^    (\S+) +((?:\S +)*\S)$", DECIDED, re.MULTILINE)
    if "-" not in marks
}


def test_every_option_of_the_sink_is_decided():
    shared = {
        "kafka.group.id",
        "includeHeaders",
        "failOnDataLoss",
        "traceDir",
    }  # the others of both sides are the connection's
    assert set(ROWS) == {row.name for row in OPTIONS if row.side is SINK} | shared
    assert {row.option for row in UNUSED} <= set(ROWS)


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_an_option_is_used_or_named(guarantee, caplog):
    caplog.set_level(logging.WARNING, "spark_kafka_eos")
    first = len(WRITES) * (guarantee == "at-least-once")
    decided = {
        (name, number): mark
        for name, marks in ROWS.items()
        for number, mark in enumerate(marks[first : first + len(WRITES)])
        if mark != "x"
    }
    assert {(name, number): outcome(name, number, guarantee, caplog) for name, number in decided} == decided


def outcome(name, number, guarantee, caplog):
    """What becomes of one option of one write: u, w or R; otherwise what went wrong."""
    table.say_without_effect.cache_clear()
    caplog.clear()
    write, given = WRITES[number]
    value = guarantee if name == "deliveryGuarantee" else VALUES.get(name, "x")
    options = BASE | {"deliveryGuarantee": guarantee} | given | {name: value}
    try:
        sink_options(options, write, default_transactional_id="r" if write is WriteKind.BATCH else None)
    except ConfigurationError as refused:
        named = refused.option == name and re.search("has no effect here: .*Remove the option", str(refused))
        return "R" if named else str(refused)
    warned = [record.args[0] for record in caplog.records].count(name)
    return {0: "u", 1: "w"}.get(warned, f"{warned} warnings")


def test_whoever_does_not_say_what_the_write_is_hears_nothing(caplog):
    sink_options(BASE | {"appendMode": "executors", "logLevel": "info", "includeHeaders": "true"})
    assert caplog.records == []
