"""Asks the Python of each executor, with a small job of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Timer

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.spark.jvm import comes_from_spark, executors
from spark_kafka_eos.tools.doctor import self_report
from spark_kafka_eos.tools.doctor.facts import Interpreter, interpreter
from spark_kafka_eos.tools.doctor.gather import questions

_SECONDS = 120
_SETTINGS = {
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # tasks wait for all executors, as far as Spark knows of them
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Causes that Spark wraps into its own errors.
_CAUSES = ("PYTHON_VERSION_MISMATCH", "Cannot run program", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What executors answered, by who they are; how many did, of those that Spark has; why the job failed."""

    pythons: Mapping[str, Interpreter]
    answered: int = 0
    registered: int = 0
    failure: str = ""


def ask(master: str, settings: Mapping[str, str]) -> Answers:
    """Start a session on `master`, ask, and stop it. Raises ToolFailed if there is no session."""
    builder = SparkSession.builder.appName("kafka-eos doctor").master(master)
    for name, value in {**_SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise ToolFailed(f"no Spark session on {master}: {_reason(error)}") from error
    try:
        return answers_of(session)
    finally:
        session.stop()


def answers_of(session: SparkSession) -> Answers:
    """What the executors of a session answer."""
    context = session.sparkContext
    tasks = 2 * max(context.defaultParallelism, executors(session))  # none of them is left out
    asked, report = questions(), self_report.report
    patience = Timer(_SECONDS, context.cancelAllJobs)
    cloudpickle.register_pickle_by_value(self_report)  # type: ignore[no-untyped-call]  # they may lack the package
    patience.start()
    try:
        answers = context.parallelize(range(tasks), tasks).map(lambda _: report(*asked)).collect()
    except Exception as error:
        if not comes_from_spark(error):
            raise
        return Answers(pythons={}, registered=executors(session), failure=_reason(error))
    finally:
        patience.cancel()
        cloudpickle.unregister_pickle_by_value(self_report)  # type: ignore[no-untyped-call]
    interpreters = [interpreter(answer) for answer in answers]
    return Answers(
        pythons=by_name(interpreters),
        answered=len({(python.host, python.daemon) for python in interpreters}),
        registered=executors(session),
    )


def by_name(answers: list[Interpreter]) -> dict[str, Interpreter]:
    """Those that differ, by the host that they are on. Executors of a host with the same Python count once."""
    names: dict[str, Interpreter] = {}
    for python in (replace(answer, daemon=0) for answer in answers):
        there = sum(other.host == python.host for other in names.values())
        if python not in names.values():
            names[f"executors on {python.host}" + (f" ({there + 1})" if there else "")] = python
    return names


def findings(answers: Answers) -> Iterator[Finding]:
    """Whether all executors answered."""
    subject = "executors"
    if answers.failure:
        yield Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"did not answer: {answers.failure}",
            meaning="No task of a query would run",
            action="Name in PYSPARK_PYTHON a Python that each node has, of the driver's version",
        )
        return
    observation = f"{answers.answered} of {answers.registered} answered"
    if answers.answered >= answers.registered:
        yield Finding(severity=Severity.OK, subject=subject, found=observation)
        return
    yield Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=observation,
        meaning="The others had no task of this job",
        action="Run it again when the cluster is idle",
    )


def _reason(error: Exception) -> str:
    """The line of Spark's error that names the cause, or its first one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if any(cause in line for cause in _CAUSES)]
    if causes and "cancelled" in causes[0]:
        return f"no executor within {_SECONDS} s"
    return (causes or lines or [type(error).__name__])[0]
