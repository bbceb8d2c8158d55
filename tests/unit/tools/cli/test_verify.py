"""How a report is shown: the table, its summary, the JSON; and what cannot be checked."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from spark_kafka_eos.errors import BrokerUnreachable, ToolFailed
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.cli.verify import print_report, summary, table, to_json
from spark_kafka_eos.tools.verify.findings import CheckedInvariant, Invariant, Violation
from spark_kafka_eos.tools.verify.verification import Report, verify

MISSING = Violation(kind="missing", where="in-0@7", what="is not in the committed output [sic]", count=3,
                    also=("in-0@8",))  # fmt: skip
TWICE = Violation(kind="more than once", where="out-1@9", what="is another copy of in-0@2, which is at out-1@3")
UNPROVEN = "the contents differ"


def report(*violations, unchecked="", note="", topics=None):
    findings = [
        CheckedInvariant(
            invariant=Invariant.ONCE, checked=1_234, violations=violations, unchecked=unchecked, note=note, asked=True
        ),
        CheckedInvariant(invariant=Invariant.LEDGER, unit="batches", unchecked="no history"),
        CheckedInvariant(invariant=Invariant.HEALED, checked=2, unit="partitions"),
    ]
    readers = ("spark-kafka-eos", "librdkafka")
    return Report(
        topics=topics or {"out": 1_234}, findings=tuple(findings), uncommitted=5, readers=readers, seconds=1.25
    )


def shown(renderable):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def test_every_invariant_has_a_row_with_its_verdict_and_the_first_violation_of_each_kind():
    text = shown(table(report(MISSING, TWICE)))
    assert "1,234" in text
    assert "violated" in text and "not checked: no history" in text and "holds" in text
    assert "in-0@7 is not in the committed output [sic] (and 2 more, in-0@8)" in text
    assert "out-1@9 is another copy of in-0@2, which is at out-1@3" in text


def test_the_summary_says_what_was_read_and_what_is_violated():
    assert summary(report()) == (
        "out: 1,234 records committed and 5 not, read by spark-kafka-eos, librdkafka, in 1.2 s; "
        "every checked invariant holds."
    )
    assert summary(report(MISSING)).endswith("; violated: once.")


def test_of_an_output_of_several_topics_the_summary_and_the_json_say_how_many_records_each_has():
    several = report(topics={"out": 990, "dead": 10})
    assert summary(several).startswith(
        "out, dead: 1,000 records committed (990 in out, 10 in dead) and 5 not, read by "
    )
    found = json.loads(json.dumps(to_json(several)))
    assert (found["topic"], found["records"], found["topics"]) == ("out, dead", 1_000, {"out": 990, "dead": 10})


def test_the_json_has_names_verdicts_and_every_violation():
    found = json.loads(json.dumps(to_json(report(MISSING))))
    assert (found["holds"], found["records"]) == (False, 1_234)
    assert [(f["invariant"], f["verdict"]) for f in found["findings"]] == [
        ("once", "violated"), ("ledger", "not checked"), ("healed", "holds")
    ]  # fmt: skip
    assert found["findings"][0]["violations"] == [
        {"kind": "missing", "where": "in-0@7", "what": MISSING.what, "count": 3, "also": ["in-0@8"]}
    ]


def test_what_could_not_be_checked_is_shown_with_the_reason_and_next_to_what_is_violated():
    assert "not checked: the contents differ" in shown(table(report(unchecked=UNPROVEN)))
    assert "holds: by their contents" in shown(table(report(note="by their contents")))
    text = shown(table(report(MISSING, unchecked=UNPROVEN)))
    assert "in-0@7 is not" in text and UNPROVEN in text
    assert summary(report(unchecked=UNPROVEN)).endswith("; not checked: once.")
    assert "1 the contents differ" in str(report(unchecked=UNPROVEN))


def test_an_unproven_invariant_is_no_success_if_requested_and_no_failure_if_not():
    asked = report(unchecked=UNPROVEN)
    assert (asked.verdict, asked.unproven, asked.holds) == ("not checked", (Invariant.ONCE,), False)
    assert (report(MISSING, unchecked=UNPROVEN).verdict, report(MISSING).unproven) == ("violated", ())
    assert (report().verdict, report().unproven) == ("holds", ())


@pytest.mark.parametrize(
    ("checked", "verdict", "exit_code"),
    [
        (report(), "holds", 0),
        (report(MISSING), "violated", 1),
        (report(MISSING, unchecked=UNPROVEN), "violated", 1),
        (report(unchecked=UNPROVEN), "not checked", 3),
    ],
)
@pytest.mark.parametrize("as_json", [True, False])
def test_the_exit_code_and_the_json_say_which_of_the_three_it_is(capsys, checked, verdict, exit_code, as_json):
    assert print_report(lambda _: checked, as_json=as_json) == exit_code
    if as_json:
        assert json.loads(capsys.readouterr().out)["verdict"] == verdict


def test_a_cluster_that_cannot_be_asked_refutes_nothing():
    def unreachable(*_, **__):
        raise BrokerUnreachable("no broker answers", action="Start one.")

    given = ["verify", "--bootstrap-servers", "broker:9092", "--topic", "out", "--json"]
    ended = CliRunner().invoke(app, given, obj=unreachable)
    assert (ended.exit_code, ended.stdout) == (3, "")
    assert "Error: no broker answers. Start one." in ended.stderr
    assert "committed" not in ended.stderr


def test_brokers_that_are_missing_or_wrong_are_a_usage_error_that_names_the_flag():
    ended = CliRunner().invoke(app, ["verify", "--topic", "out"])
    assert ended.exit_code == 2
    assert "Error: --bootstrap-servers (option kafka.bootstrap.servers): is required." in ended.stderr
    elsewhere = ["--source", "in", "--source-bootstrap-servers", "b:x"]
    ended = CliRunner().invoke(app, ["verify", "--bootstrap-servers", "a:1", "--topic", "out", *elsewhere])
    assert ended.exit_code == 2
    assert "Error: --source-bootstrap-servers (option kafka.bootstrap.servers): " in ended.stderr


def test_eighty_columns_cut_nothing_of_a_violation():
    where = "orders.of.every.country.and.every.year.since.the.beginning-0@123456789"
    console = Console(width=80)
    with console.capture() as captured:
        console.print(table(report(Violation(kind="missing", where=where, what="is not there"))))
    rows = [line.split("│")[1:-1] for line in captured.get().splitlines() if line.startswith("│")]
    *_, verdict = ("".join("".join(cell.split()) for cell in column) for column in zip(*rows, strict=True))
    assert f"{where}isnotthere" in verdict
    assert "…" not in captured.get()


def test_a_copy_needs_a_source():
    ended = CliRunner().invoke(app, ["verify", "--bootstrap-servers", "broker:9092", "--topic", "out", "--copy"])
    assert ended.exit_code == 2
    with pytest.raises(ValueError, match="source"):
        verify("broker:9092", "out", copy=True)


@pytest.mark.parametrize(
    ("flag", "value", "needed"),
    [
        ("--group", "g", "--source"),
        ("--ledger-key", "env:LEDGER_KEY", "--transactional-id"),
        ("--ledger-topic", "ledger-of-us", "--transactional-id"),
    ],
)
def test_what_means_nothing_alone_is_not_ignored(monkeypatch, flag, value, needed):
    monkeypatch.setenv("LEDGER_KEY", "k" * 32)
    given = ["verify", "--bootstrap-servers", "broker:9092", "--topic", "out", flag, value]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 2
    assert f"Invalid value for {flag}: requires {needed}" in " ".join(ended.stderr.split())
    with pytest.raises(ValueError, match=needed.strip("-").replace("-", "_")):
        verify("broker:9092", "out", **{flag.strip("-").replace("-", "_"): value})


def test_a_report_as_text_names_the_places_too():
    assert "1 missing: in-0@7 is not in the committed output [sic] (and 2 more, in-0@8)" in str(report(MISSING, TWICE))
    assert report(MISSING).violated == (Invariant.ONCE,)
    assert not report(MISSING).holds and report().holds


@pytest.mark.parametrize("text", ['{"batch": 0}\n', "{"])
def test_a_history_that_cannot_be_read_is_named_before_anything_is_asked(tmp_path, text):
    (tmp_path / "history").write_text(text)
    with pytest.raises(ToolFailed, match="history.*line 1"):
        verify("broker:9092", "out", history=tmp_path / "history")
    with pytest.raises(ToolFailed, match="nowhere"):
        verify("broker:9092", "out", history=tmp_path / "nowhere")
