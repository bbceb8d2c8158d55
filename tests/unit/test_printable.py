"""Characters that do something to who reads them are in no log line, error, page and label; one place sees to it."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

import spark_kafka_eos
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.kafka.words import one_line, printable
from spark_kafka_eos.observe.metrics import Metric, Series
from spark_kafka_eos.tools.cli.timeline import html, svg
from tests.hostile import EVIL, HIDDEN
from tests.unit.tools.cli.test_trace import report, request

PACKAGE = Path(spark_kafka_eos.__file__).parent
_log = logger("spark_kafka_eos.test_printable")


@pytest.mark.parametrize("character", HIDDEN, ids=ascii)
def test_no_such_character_gets_anywhere(character, caplog):
    text = f"id{character}end"
    shown = "id�end"
    assert one_line(text) == shown
    assert printable(text) == (text if character == "\n" else shown)
    error = KafkaEosError(f"no query {text}", action=f"See {text}")
    assert error.what == f"no query {printable(text)}" and (character == "\n" or character not in str(error))
    _log.warning("took the id of %s", text)
    assert caplog.messages == [f"took the id of {shown}"]
    series, metric = Series(), Metric("kafka_eos_test", "gauge", ("transactional_id",), "A test's.")
    series.set(metric, text, value=1)
    series.add(metric, text)
    assert dict(series.values(metric)) == {(shown,): 2}


def test_a_logs_own_line_breaks_stay_and_a_names_do_not(caplog):
    _log.warning("two\nlines of %s", "one")
    _log.warning("a line of %s and %d", "one\nforged", 7)
    _log.warning("plain %s", "one")
    assert caplog.messages == ["two\nlines of one", "a line of one�forged and 7", "plain one"]
    assert caplog.records[-1].args == ("one",), "what needs no change is as it was"


def test_an_error_from_a_task_is_the_same_in_the_driver():
    error = KafkaEosError(EVIL, action=EVIL)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).replace("\n", "").isprintable()


def test_a_page_and_a_picture_show_such_names_and_are_well_formed():
    sent = (request("Produce", 30.0, EVIL, about=EVIL), request(EVIL, 40.0, ""))
    picture = svg(report(requests=sent, error=EVIL))
    for page in (picture, html(f"Last batches of {EVIL}", [picture])):
        assert page.replace("\n", "").isprintable()
        assert "�[2K" in page and "<bold" not in page


def test_every_logger_of_this_package_is_such_a_one():
    """Found by reading: a new module that takes a logger by itself fails here."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                where = f"{file.relative_to(PACKAGE)}: {ast.unparse(node)}"
                assert where in (
                    "kafka/logs.py: logging.getLogger(name)",
                    "spark/commit_log.py: logging.getLogger('spark_kafka_eos')",
                ), where


def test_every_command_prints_text_through_the_console():
    """`print` is for JSON, and for what is listed here; a new one fails."""
    for file in (PACKAGE / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "sys.stdout.write"):
                said = ast.unparse(node)
                assert (
                    "json.dumps" in said
                    or said.startswith("print(printable(")
                    or said
                    in (
                        "print(f'kafka-eos {spark_kafka_eos.__version__}')",
                        "print(kafka.bootstrap, flush=True)",
                    )
                ), f"{file.name}: {said}"
