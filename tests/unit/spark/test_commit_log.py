"""The commit's own log reaches stderr once, and leaves to others what they have set up."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

from spark_kafka_eos.spark.commit_log import JsonLines

SHOWN = """
import logging
{before}
from spark_kafka_eos.spark.commit_log import show
for _ in range(2):  # Spark may let a process commit again
    show({level!r})
log = logging.getLogger("spark_kafka_eos.writing.commit")
log.info("batch 7 committed")
log.warning("batch 7, attempt 1: fenced")
logging.getLogger("py4j").info("chatter")
"""


def stderr(level: str, before: str = "") -> list[str]:
    script = SHOWN.format(before=before, level=level)
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stderr.splitlines()


def test_each_line_is_shown_once_from_the_level_on() -> None:
    info, warning = stderr("info")
    assert info.endswith("INFO spark_kafka_eos.writing.commit: batch 7 committed")
    assert warning.endswith("WARNING spark_kafka_eos.writing.commit: batch 7, attempt 1: fenced")
    assert [line.rpartition(": ")[2] for line in stderr("warning")] == ["fenced"]


def test_where_a_handler_is_it_gets_the_lines_alone() -> None:
    own = "logging.basicConfig(format='own %(message)s', level=logging.INFO)"
    assert stderr("info", own)[:2] == ["own batch 7 committed", "own batch 7, attempt 1: fenced"]


def test_as_json_each_line_is_an_object_with_a_message_or_a_report() -> None:
    record = logging.LogRecord("spark_kafka_eos.x", logging.WARNING, "x.py", 1, 'a "%s"', ("b",), None)
    told = json.loads(JsonLines().format(record))
    assert (told["level"], told["logger"], told["message"]) == ("WARNING", "spark_kafka_eos.x", 'a "b"')
    record.report = {"batch_id": 7}
    told = json.loads(JsonLines().format(record))
    assert sorted(told) == ["batch_id", "level", "logger", "time"]
