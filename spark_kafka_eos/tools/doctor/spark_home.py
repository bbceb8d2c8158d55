"""Whether Spark is there, in a release that the connector supports, with the PySpark and the Java that it needs.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import JavaProgram, Spark, version_of

_OLDEST = (3, 5)
_WITH_FORMAT, _WITH_LIMITS = (4, 0), (4, 2)
# Source: Spark's pages "Overview" of 3.5 and 4.0.
_OLDEST_JAVA, _OLDEST_JAVA_BEFORE_4 = 17, 8


def findings(spark: Spark | None, java: JavaProgram | str, installed: str | None) -> Iterator[Finding]:
    """`java` is why there is none, or what was found; `installed` the version of the PySpark that pip installed where
    this command runs, None if it is not.
    """
    if spark is None:
        yield Finding(
            severity=Severity.ERROR,
            subject="Spark",
            found="not found: SPARK_HOME is not set, PySpark is not installed here, no spark-submit in the PATH",
            action='Set SPARK_HOME, or run: pip install "spark-kafka-eos[spark]"',
        )
    else:
        yield _release(spark)
        if installed is not None:
            yield _installed(spark, installed)
    yield _java(java, spark)


def _release(spark: Spark) -> Finding:
    subject, observation = "Spark", f"{spark.version or 'unknown release'}, {spark.home}, by {spark.named_by}"
    version = version_of(spark.version)
    if not version:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=observation,
            meaning="It has no jars/spark-core_*.jar, so this folder has no Spark",
            action="Set SPARK_HOME to the folder that has bin/spark-submit and jars",
        )
    if version < _OLDEST:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=observation,
            meaning="The connector needs Spark 3.5 or later",
            action="Install Spark 4.2 or later, or 3.5 to use TransactionalWriter only",
        )
    if version < _WITH_FORMAT:
        return Finding(
            severity=Severity.WARNING,
            subject=subject,
            found=observation,
            meaning="This release has no Python data sources: format('kafka-eos') is not found",
            action="Use TransactionalWriter in foreachBatch with the built-in source, or Spark 4.0 or later",
        )
    if version < _WITH_LIMITS:
        return Finding(
            severity=Severity.WARNING,
            subject=subject,
            found=observation,
            meaning="With availableNow, this release runs one micro-batch, and maxOffsetsPerTrigger leaves the rest",
            action="Leave the trigger out and wait with processAllAvailable, or use Spark 4.2 or later",
        )
    return Finding(severity=Severity.OK, subject=subject, found=observation)


def _installed(spark: Spark, installed: str) -> Finding:
    subject, observation = "installed PySpark", f"{installed}; Spark is {spark.version}"
    if installed == spark.version:
        return Finding(severity=Severity.OK, subject=subject, found=installed)
    far = version_of(installed)[:2] != version_of(spark.version)[:2]
    return Finding(
        severity=Severity.ERROR if far else Severity.WARNING,
        subject=subject,
        found=observation,
        meaning="A program that python starts uses the installed one, whose calls Spark may not have",
        action=f"Run: pip install pyspark=={spark.version}; or unset SPARK_HOME",
    )


def _java(java: JavaProgram | str, spark: Spark | None) -> Finding:
    before_4 = spark is not None and () < version_of(spark.version) < (4,)
    oldest = _OLDEST_JAVA_BEFORE_4 if before_4 else _OLDEST_JAVA
    action = f"Install Java {max(oldest, 17)}, and set JAVA_HOME to its folder"
    if isinstance(java, str):
        return Finding(
            severity=Severity.ERROR, subject="Java", found=java, meaning="Spark does not start", action=action
        )
    observation = f"{java.release}, {java.program}"
    if java.release < oldest:
        return Finding(
            severity=Severity.ERROR,
            subject="Java",
            found=observation,
            meaning=f"This Spark needs Java {oldest} or later",
            action=action,
        )
    return Finding(severity=Severity.OK, subject="Java", found=observation)
