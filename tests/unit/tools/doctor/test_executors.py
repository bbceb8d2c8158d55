"""What is made of the executors' answers; tests/spark/test_doctor.py asks real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor import executors
from spark_kafka_eos.tools.doctor.executors import Answers, by_name, findings
from tests.unit.tools.doctor.test_pythons import FIT


def test_executors_with_the_same_python_on_a_host_count_once_and_others_have_a_number():
    other = replace(FIT, executable="/other/bin/python")
    answers = [FIT, replace(FIT, daemon=2), replace(FIT, host="there"), other, replace(other, daemon=4)]
    assert by_name(answers) == {
        "executors on here": replace(FIT, daemon=0),
        "executors on there": replace(FIT, host="there", daemon=0),
        "executors on here (2)": replace(other, daemon=0),
    }


@pytest.mark.parametrize(
    ("answers", "severity", "found"),
    [
        (Answers(pythons={}, answered=2, registered=2), Severity.OK, "2 of 2 answered"),
        (Answers(pythons={}, answered=3, registered=2), Severity.OK, "3 of 2 answered"),  # one was lost meanwhile
        (Answers(pythons={}, answered=1, registered=2), Severity.WARNING, "1 of 2 answered"),
        (Answers(pythons={}, registered=2, failure="no Python"), Severity.ERROR, "did not answer: no Python"),
    ],
)
def test_executors_that_did_not_answer_are_told(answers, severity, found):
    (only,) = findings(answers)
    assert (only.severity, only.found) == (severity, found)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "Job aborted\n\tat org.apache…\n[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12",
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12",
        ),
        (
            'java.io.IOException: Cannot run program "/env/bin/python": error=2',
            'java.io.IOException: Cannot run program "/env/bin/python": error=2',
        ),
        ("Job 0 cancelled as part of cancellation of all jobs", "no executor within 120 s"),
        ("An error occurred\nmore", "An error occurred"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_the_line_of_sparks_error_that_names_the_cause(message, reason):
    assert executors._reason(RuntimeError(message)) == reason
