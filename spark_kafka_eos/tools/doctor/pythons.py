"""Which Python Spark uses for what, and whether each has what it needs. Pure.

Source: Spark's `PythonUtils`, `UserDefinedPythonDataSource` and `PythonRunner`, `pyspark.core.context`. Only the
environment variables of the driver's JVM decide which Python plans a data source.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import Interpreter, Silent, Version, version_of

OLDEST_PYTHON = (3, 11)
OLDEST_PYSPARK = (3, 5)
CONNECTOR, PYSPARK = "spark-kafka-eos", "pyspark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A package: the module to import, the lowest supported version, and the first one that is not supported."""

    module: str
    lowest: Version
    below: Version | None = None


# Those of pyproject.toml that a query needs, by distribution.
REQUIREMENTS = {
    "google-crc32c": Requirement(module="google_crc32c", lowest=(1, 5)),
    "kafka-python": Requirement(module="kafka", lowest=(3, 0, 12), below=(4,)),
    "numpy": Requirement(module="numpy", lowest=(1, 26)),
    "pandas": Requirement(module="pandas", lowest=(2, 2), below=(3,)),
    "pyarrow": Requirement(module="pyarrow", lowest=(19,)),
}
# How Spark finds the format; imports PySpark's data sources.
_FORMAT = "pyspark-kafka-eos"
MODULES = {
    **{name: needed.module for name, needed in REQUIREMENTS.items()},
    PYSPARK: "pyspark",
    CONNECTOR: "spark_kafka_eos",
    _FORMAT: "pyspark_kafka_eos",
}
# What each extra adds to a query, by one of its distributions.
EXTRAS = {
    "pkcs12": "cryptography",
    "aws": "aws-msk-iam-sasl-signer-python",
    "kerberos": "gssapi",
    "fsspec": "fsspec",
    "metrics": "prometheus-client",
    "otel": "opentelemetry-sdk",
    "lineage": "openlineage-python",
    "registry": "fastavro",
    "sql": "duckdb",
}


class Use(StrEnum):
    """What Spark starts a Python for."""

    PROGRAM = "spark-submit"
    FORMAT = "format('kafka-eos')"
    FUNCTIONS = "Python functions"


def commands(environment: Mapping[str, str], settings: Mapping[str, str]) -> dict[Use, str]:
    """The Python of each use, as Spark would name it. `settings` are Spark's."""
    workers = environment.get("PYSPARK_PYTHON") or "python3"
    driver = environment.get("PYSPARK_DRIVER_PYTHON") or workers
    set_workers = settings.get("spark.pyspark.python")
    return {
        Use.PROGRAM: settings.get("spark.pyspark.driver.python") or set_workers or driver,
        Use.FORMAT: driver,
        Use.FUNCTIONS: set_workers or workers,
    }


def to_use(python: str, environment: Mapping[str, str]) -> str:
    """What to do so that Spark uses `python` for everything."""
    driver = [name for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_DRIVER_PYTHON_OPTS") if environment.get(name)]
    unset = f"unset {' '.join(driver)}; " if driver else ""
    return f"Run: {unset}export PYSPARK_PYTHON={shlex.quote(python)}"


def variables(environment: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Finding]:
    """What is set, but does not name the Python that the user expects. `settings` are Spark's."""
    named = commands(environment, settings)
    driver, workers = environment.get("PYSPARK_DRIVER_PYTHON"), environment.get("PYSPARK_PYTHON") or "python3"
    if driver and driver != workers:
        yield Finding(
            severity=Severity.WARNING,
            subject="PYSPARK_DRIVER_PYTHON",
            found=driver,
            meaning=f"Spark runs source and sink with it everywhere, also on executors, and not with {workers}",
            action="Run: unset PYSPARK_DRIVER_PYTHON PYSPARK_DRIVER_PYTHON_OPTS",
        )
    for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        if settings.get(name, named[Use.FORMAT]) != named[Use.FORMAT]:
            yield Finding(
                severity=Severity.WARNING,
                subject=name,
                found=settings[name],
                meaning=f"Data sources do not use this setting: Spark looks for format('kafka-eos') with "
                f"{named[Use.FORMAT]}",
                action=to_use(settings[name], environment),
            )


def findings(who: str, answer: Interpreter | Silent, *, uses: Sequence[str] = (), cure: str) -> Iterator[Finding]:
    """Whether one Python has all that it needs. `who` names it; `cure` says how to use one that does."""
    if isinstance(answer, Silent):
        yield Finding(
            severity=Severity.ERROR,
            subject=who,
            found=answer.reason,
            meaning="Spark cannot run its modules with it: DATA_SOURCE_NOT_FOUND, or no task starts",
            action=cure,
        )
        return
    yield _version(who, answer, uses, cure)
    packages = _packages(who, answer, cure)
    yield packages
    yield _pyspark(who, answer, cure)
    if packages.severity is not Severity.ERROR and not answer.modules[PYSPARK].error:
        yield from _format(who, answer, cure)


def _version(who: str, python: Interpreter, uses: Sequence[str], cure: str) -> Finding:
    observation = f"{_dotted(python.version)}, {python.executable}" + (f"; for {', '.join(uses)}" if uses else "")
    if python.version < OLDEST_PYTHON:
        return Finding(
            severity=Severity.ERROR,
            subject=who,
            found=observation,
            meaning=f"The connector needs Python {_dotted(OLDEST_PYTHON)} or later",
            action=cure,
        )
    return Finding(severity=Severity.OK, subject=who, found=observation)


def _packages(who: str, python: Interpreter, cure: str) -> Finding:
    subject = f"packages of {who}"
    modules = {name: python.modules[name] for name in (*REQUIREMENTS, CONNECTOR)}
    if unusable := [f"{name} ({module.error})" for name, module in modules.items() if module.error]:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=f"lacks {', '.join(unusable)}",
            meaning="Spark answers DATA_SOURCE_NOT_FOUND, or tasks fail with ModuleNotFoundError",
            action=cure,
        )
    versions = {name: version_of(module.version) for name, module in modules.items()}
    old = [name for name, needed in REQUIREMENTS.items() if versions[name] and versions[name] < needed.lowest]
    new = [name for name, needed in REQUIREMENTS.items() if needed.below and versions[name] >= needed.below]
    extras = [extra for extra, package in EXTRAS.items() if package in python.optional]
    observation = ", ".join(f"{name} {module.version}".strip() for name, module in modules.items())
    observation += f"; extras: {', '.join(extras) or 'none'}"
    if not old and not new:
        return Finding(severity=Severity.OK, subject=subject, found=observation)
    wrong = ", ".join(f"{name} {python.modules[name].version}" for name in (*old, *new))
    return Finding(
        severity=Severity.ERROR if old else Severity.WARNING,
        subject=subject,
        found=f"has {wrong}",
        meaning=f"Supported: {', '.join(f'{name} {_range(REQUIREMENTS[name])}' for name in (*old, *new))}",
        action=f"Run: {shlex.quote(python.executable)} -m pip install --upgrade spark-kafka-eos",
    )


def _pyspark(who: str, python: Interpreter, cure: str) -> Finding:
    subject, module = f"PySpark of {who}", python.modules[PYSPARK]
    if module.error:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=module.error,
            meaning="This Python cannot run Spark's modules",
            action='Set SPARK_HOME to a folder with Spark, or install the extra: pip install "spark-kafka-eos[spark]"',
        )
    if version_of(module.version) < OLDEST_PYSPARK:
        return Finding(
            severity=Severity.ERROR,
            subject=subject,
            found=module.version,
            meaning=f"The connector needs PySpark {_dotted(OLDEST_PYSPARK)} or later",
            action=cure,
        )
    return Finding(severity=Severity.OK, subject=subject, found=f"{module.version}, {module.file}")


def _format(who: str, python: Interpreter, cure: str) -> Iterator[Finding]:
    """Only if Spark could not import the format although everything is there."""
    module = python.modules[_FORMAT]
    if not module.error:
        return
    old = version_of(python.modules[PYSPARK].version) < (4,)
    yield Finding(
        severity=Severity.WARNING if old else Severity.ERROR,
        subject=f"format('kafka-eos') in {who}",
        found=module.error,
        meaning="Spark answers DATA_SOURCE_NOT_FOUND",
        action="Use TransactionalWriter in foreachBatch, or Spark 4.0 or later" if old else cure,
    )


def together(answers: Mapping[str, Interpreter]) -> Iterator[Finding]:
    """Whether the Pythons, by who they are, can work together: one version of Python, of this package, of PySpark."""
    if len(answers) < 2:
        return
    for subject, meaning, versions in (
        (
            "versions of Python",
            "Tasks fail with PYTHON_VERSION_MISMATCH",
            {who: _dotted(python.version[:2]) for who, python in answers.items()},
        ),
        (
            f"versions of {CONNECTOR}",
            "What one release hands to another in a task may not be understood there",
            _versions(answers, CONNECTOR),
        ),
        ("versions of PySpark", "PySpark's processes understand only their own release", _versions(answers, PYSPARK)),
    ):
        different = sorted(set(versions.values()))
        if len(different) < 2:
            yield Finding(severity=Severity.OK, subject=subject, found=", ".join(different) or "unknown")
        else:
            yield Finding(
                severity=Severity.ERROR,
                subject=subject,
                found="; ".join(f"{version}: {_of(version, versions)}" for version in different),
                meaning=meaning,
                action="Use one environment for driver and executors: set PYSPARK_PYTHON, and unset "
                "PYSPARK_DRIVER_PYTHON",
            )


def extras_together(answers: Mapping[str, Interpreter]) -> Iterator[Finding]:
    """Extras that only some of the Pythons have."""
    for extra, package in EXTRAS.items():
        lacking = [who for who, python in answers.items() if package not in python.optional]
        if lacking and len(lacking) < len(answers):
            yield Finding(
                severity=Severity.WARNING,
                subject=f"extra {extra}",
                found=f"not installed for {', '.join(lacking)}",
                meaning="The others have it: a query that needs it fails there",
                action=f'Run with that Python: python -m pip install "{CONNECTOR}[{extra}]"',
            )


def _versions(answers: Mapping[str, Interpreter], package: str) -> dict[str, str]:
    return {who: module.version for who, python in answers.items() if not (module := python.modules[package]).error}


def _of(version: str, versions: Mapping[str, str]) -> str:
    return ", ".join(who for who, other in versions.items() if other == version)


def _range(needed: Requirement) -> str:
    below = f", below {_dotted(needed.below)}" if needed.below else ""
    return f"{_dotted(needed.lowest)} or later{below}"


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))
