"""How a report is shown: the table, its summary, the JSON; and what cannot be checked."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from spark_kafka_eos.core.findings import Finding, Invariant, Violation
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.cli_verify import summary, table, to_json
from spark_kafka_eos.tools.verify import Report, verify

MISSING = Violation(kind="missing", where="in-0@7", what="is not in the committed output [sic]", count=3)
TWICE = Violation(kind="more than once", where="out-1@9", what="is one more copy of in-0@2, which is at out-1@3")


def report(*violations):
    findings = [
        Finding(invariant=Invariant.ONCE, checked=1_234, violations=violations),
        Finding(invariant=Invariant.LEDGER, unit="batches", unchecked="no history"),
        Finding(invariant=Invariant.HEALED, checked=2, unit="partitions"),
    ]
    readers = ("spark-kafka-eos", "librdkafka")
    return Report(topic="out", findings=tuple(findings), records=1_234, uncommitted=5, readers=readers, seconds=1.25)


def shown(renderable):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_every_invariant_has_a_row_with_its_verdict_and_the_first_violation_of_each_kind():
    text = shown(table(report(MISSING, TWICE)))
    assert "1,234" in text
    assert "violated" in text and "not checked: no history" in text and "holds" in text
    assert "in-0@7 is not in the committed output [sic] (and 2 more)" in text
    assert "out-1@9 is one more copy of in-0@2, which is at out-1@3" in text


def test_the_summary_says_what_was_read_and_what_is_violated():
    assert summary(report()) == (
        "out: 1,234 records committed and 5 not, read by spark-kafka-eos, librdkafka, in 1.2 s; "
        "every checked invariant holds."
    )
    assert summary(report(MISSING)).endswith("; violated: once.")


def test_the_json_has_names_verdicts_and_every_violation():
    found = json.loads(json.dumps(to_json(report(MISSING))))
    assert (found["holds"], found["records"]) == (False, 1_234)
    assert [(f["invariant"], f["verdict"]) for f in found["findings"]] == [
        ("once", "violated"), ("ledger", "not checked"), ("healed", "holds")
    ]  # fmt: skip
    assert found["findings"][0]["violations"] == [
        {"kind": "missing", "where": "in-0@7", "what": MISSING.what, "count": 3}
    ]


def test_a_report_as_text_names_the_places_too():
    assert "1 missing: in-0@7 is not in the committed output [sic] (and 2 more)" in str(report(MISSING, TWICE))
    assert report(MISSING).violated == (Invariant.ONCE,)
    assert not report(MISSING).holds and report().holds


@pytest.mark.parametrize("text", ['{"batch": 0}\n', "{"])
def test_a_history_that_cannot_be_read_is_named_before_anything_is_asked(tmp_path, text):
    (tmp_path / "history").write_text(text)
    with pytest.raises(ToolFailed, match="history.*line 1"):
        verify("broker:9092", "out", history=tmp_path / "history")
    with pytest.raises(ToolFailed, match="nowhere"):
        verify("broker:9092", "out", history=tmp_path / "nowhere")
