"""What the page quotes as a message of the connector is one: its texts are looked up in the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from spark_kafka_eos import errors
from tests.pages import ROOT
from tests.unit.documentation.strings import templates

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"^```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
FINDINGS = re.findall(r"^\| `([^`]+)` \| .+? \| .+? \|$", PAGE, re.MULTILINE)
_OURS_AT_LEAST = 10  # letters that a text of the code must have of its own, to be told from any other


def pieces(quote: str) -> list[str]:
    """What a message must hold, in order: without the class, and without what varies."""
    said = re.sub(r"^[A-Z]\w+: (?:option '[^']+': )?", "", " ".join(quote.split()))
    return [piece for piece in (piece.strip(" .:?") for piece in said.split("…")) if re.search(r"\w", piece)]


def is_in_the_code(quote: str) -> bool:
    """Whether the code holds all pieces of the quote; a piece that it fills in itself may be anything."""
    return all(any(_holds(text, piece) for text in _texts()) for piece in pieces(quote))


def _texts() -> list[str]:
    return [" ".join(text.split()) for _, _, text in templates()]


def _holds(text: str, piece: str) -> bool:
    if piece in text:
        return True
    fixed = [part for part in text.split("…") if part]
    if len("".join(fixed)) < _OURS_AT_LEAST or "…" not in text:
        return False
    return re.search("^" + ".*?".join(re.escape(part.strip()) for part in text.split("…")) + "$", piece) is not None


@pytest.mark.parametrize("quote", [*QUOTED, *FINDINGS])
def test_a_quoted_message_is_one_of_the_codes(quote):
    assert is_in_the_code(quote)


def test_the_page_quotes_classes_of_ours_only():
    classes = {match[1] for quote in QUOTED if (match := re.match(r"([A-Z]\w+):", quote))}
    assert classes
    assert classes <= set(vars(errors))


def test_a_message_that_the_code_does_not_have_is_noticed():
    assert not is_in_the_code("LedgerRefused: the ledger has gone fishing, but the checkpoint is at batch …")


def test_the_page_covers_what_stops_a_query():
    for name in ("LedgerRefused", "ProducerFenced", "PreflightFailed", "CommitOutcomeUnknown", "DataLoss"):
        assert any(quote.startswith(f"{name}: ") for quote in QUOTED)


def test_the_command_that_asks_a_python_for_the_package_asks_the_one_that_spark_would_take(tmp_path):
    command = next(
        block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "found" in block
    )
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 7\n")
    other.chmod(0o755)

    def ask(**variables: str) -> tuple[int, str]:
        path = os.pathsep.join(sys.path)
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"PYTHONPATH": path} | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    assert ask(PYSPARK_PYTHON=sys.executable) == (0, "found\n")
    assert ask(PYSPARK_PYTHON=str(other), PYSPARK_DRIVER_PYTHON=sys.executable) == (0, "found\n")
    assert ask(PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=str(other)) == (7, "")
