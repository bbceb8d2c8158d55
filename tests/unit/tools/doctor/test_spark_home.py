"""What is found in Spark's release, the installed PySpark and Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor.facts import JavaProgram, Spark
from spark_kafka_eos.tools.doctor.spark_home import findings

JAVA = JavaProgram(program="java", release=17)


def spark(version: str) -> Spark:
    return Spark(home=Path("/opt/spark"), named_by="SPARK_HOME", version=version)


def severities(*facts: object) -> dict[str, Severity]:
    return {each.subject: each.severity for each in findings(*facts)}  # type: ignore[arg-type]


def test_a_supported_spark_with_its_own_pyspark_and_java_is_shown():
    found = list(findings(spark("4.3.0"), JAVA, "4.3.0"))
    assert [(each.severity, each.found) for each in found] == [
        (Severity.OK, "4.3.0, /opt/spark, by SPARK_HOME"),
        (Severity.OK, "4.3.0"),
        (Severity.OK, "17, java"),
    ]


def test_without_spark_that_is_the_error_and_java_is_still_looked_at():
    assert severities(None, JAVA, None) == {"Spark": Severity.ERROR, "Java": Severity.OK}


@pytest.mark.parametrize(
    ("version", "severity", "meaning"),
    [
        ("", Severity.ERROR, "spark-core_"),
        ("3.4.4", Severity.ERROR, "needs Spark 3.5"),
        ("3.5.8", Severity.WARNING, "no Python data sources"),
        ("4.1.4", Severity.WARNING, "maxOffsetsPerTrigger"),
        ("4.2.0", Severity.OK, ""),
    ],
)
def test_what_a_release_lacks_is_said(version, severity, meaning):
    found = next(findings(spark(version), JAVA, None))
    assert found.severity is severity
    assert meaning in found.meaning


@pytest.mark.parametrize(
    ("installed", "severity"),
    [("4.3.0", Severity.OK), ("4.3.1", Severity.WARNING), ("4.2.0", Severity.ERROR), ("3.5.8", Severity.ERROR)],
)
def test_the_installed_pyspark_must_be_of_sparks_minor_release(installed, severity):
    assert severities(spark("4.3.0"), JAVA, installed)["installed PySpark"] is severity


@pytest.mark.parametrize(
    ("version", "release", "severity"),
    [
        ("4.3.0", 11, Severity.ERROR),
        ("4.3.0", 17, Severity.OK),
        ("4.3.0", 21, Severity.OK),
        ("3.5.8", 8, Severity.OK),
        ("3.5.8", 7, Severity.ERROR),
        ("", 11, Severity.ERROR),
    ],
)
def test_spark_4_needs_java_17_and_spark_3_java_8(version, release, severity):
    assert severities(spark(version), JavaProgram(program="java", release=release), None)["Java"] is severity


def test_without_java_its_absence_is_the_finding():
    (*_, found) = findings(spark("4.3.0"), "java cannot be started: No such file or directory", None)
    assert found.severity is Severity.ERROR
    assert found.found == "java cannot be started: No such file or directory"
    assert found.action == "Install Java 17, and set JAVA_HOME to its folder"
