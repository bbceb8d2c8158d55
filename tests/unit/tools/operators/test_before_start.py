"""What the preflight says of a transaction that hangs in a topic that the query writes."""

from __future__ import annotations

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import ProducerState, TransactionFacts
from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.operators.before_start import hanging_finding, unjudged_findings
from spark_kafka_eos.tools.operators.survey import Ending, OpenPart, Survey

AT = TopicPartition("out", 3)
NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("name", "whose", "action"),
    [
        ("copy", "copy", "Start the query: it ends its own"),
        ("copy.bucket-1", "copy.bucket-1", "Start the query: it ends its own"),
        ("copy-more", "copy-more", "End it: kafka-eos transactions abort --topic out --partition 3 --start-offset 5"),
        (None, "producer 7", "End it: kafka-eos transactions abort --topic out --partition 3 --start-offset 5"),
    ],
)
def test_the_start_of_the_query_ends_its_own_and_an_operator_the_others(name, whose, action):
    producer = ProducerState(partition=AT, producer_id=7, epoch=0, start_offset=5, last_timestamp_ms=NOW - 60_000)
    facts = name and TransactionFacts(
        transactional_id=name,
        state="CompleteCommit",
        producer_id=7,
        epoch=0,
        timeout_ms=1,
        started_ms=None,
        described_ms=NOW,
    )
    part = OpenPart(producer=producer, facts=facts, ending=Ending.NOBODY, log_ends=None, holds=True)
    finding = hanging_finding(part, "copy", NOW)
    assert (finding.severity, finding.subject) == (Severity.WARNING, "open transaction in out-3")
    assert finding.found == f"of {whose} from offset 5 on, since 60 s, and its coordinator will not end it"
    assert finding.action == action


OPEN = {AT: (ProducerState(partition=AT, producer_id=7, epoch=0, start_offset=5),)}


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Survey(taken_ms=0, producers={AT: ()}, complete=True), None),
        (Survey(taken_ms=0, producers=OPEN, complete=True), None),
        (Survey(taken_ms=0, producers=OPEN, silent={2: "no answer"}), "a transaction is open in out-3, and not every"),
        (Survey(taken_ms=0, producers={AT: ()}, unavailable={AT: "out-3 has no leader"}), "out-3 has no leader"),
    ],
    ids=["nothing is open", "one hangs", "one may hang", "a partition could not be looked at"],
)
def test_what_could_not_be_judged_is_a_warning_and_not_passed_over(found, said):
    findings = unjudged_findings(found)
    assert [finding.severity for finding in findings] == ([] if said is None else [Severity.WARNING])
    assert all(finding.found.startswith(f"could not be checked: {said}") for finding in findings)
