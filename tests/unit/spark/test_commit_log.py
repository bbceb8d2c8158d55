"""The commit's own log reaches stderr once, and leaves to others what they have set up."""

from __future__ import annotations

import subprocess
import sys

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
