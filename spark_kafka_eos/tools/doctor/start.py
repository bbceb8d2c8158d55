"""What delays each Python process that Spark starts: a query's first batch waits for about seven of them, one after
another. `conf/spark-defaults.conf` and docs/deploying.md have the measurements. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from kafka_eos_python.installed_pyspark import VARIABLE
from spark_kafka_eos.preflight.findings import Finding, Severity
from spark_kafka_eos.tools.doctor.facts import Imported, Interpreter
from spark_kafka_eos.tools.doctor.pythons import CONNECTOR, PYSPARK, REQUIREMENTS, to_use

LAUNCHER = "kafka-eos-python"


def findings(
    answers: Mapping[str, Interpreter],
    environment: Mapping[str, str],
    *,
    launcher: str | None,
    hindrance: str | None = None,
) -> Iterator[Finding]:
    """`answers` are by who they are. `launcher` is kafka-eos-python of this environment, None if it is not there.
    `hindrance` is why it cannot fork processes here, None if it can.
    """
    yield _imports(answers, hindrance)
    yield _pyspark(answers, environment, launcher)
    yield _packages(answers)
    yield _threads(environment)


def _imports(answers: Mapping[str, Interpreter], hindrance: str | None) -> Finding:
    subject = "start of Python: imports"
    launched = any(Path(who).name == LAUNCHER for who in answers)
    if hindrance is not None:
        observation = f"in each process: {hindrance}"
    elif launched:
        observation = "once: a driver's processes are forked"
    elif any(_compiles_pyspark(python) for python in answers.values()):
        observation = f"in each process; {LAUNCHER} has them once"
    else:
        observation = "in a driver's first processes; the others are forked"
    return Finding(severity=Severity.OK, subject=subject, found=observation)


def _pyspark(answers: Mapping[str, Interpreter], environment: Mapping[str, str], launcher: str | None) -> Finding:
    subject = "start of Python: PySpark"
    compiling = [who for who, python in answers.items() if _compiles_pyspark(python)]
    if not compiling:
        return Finding(severity=Severity.OK, subject=subject, found="imported with bytecode, or not at all")
    launched = all(Path(who).name == LAUNCHER for who in compiling)
    return Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=f"compiled from pyspark.zip at each start, by {', '.join(compiling)}",
        meaning="Each process takes about half a second longer, and a query's first batch waits for about seven",
        action=_to_import_bytecode(environment, None if launched else launcher),
    )


def _to_import_bytecode(environment: Mapping[str, str], launcher: str | None) -> str:
    if environment.get(VARIABLE) == "zip":
        return f"Unset {VARIABLE}"
    if launcher is not None:
        return to_use(launcher, environment)
    return "Install PySpark of Spark's release with pip where these Pythons have spark-kafka-eos"


def _compiles_pyspark(python: Interpreter) -> bool:
    module = python.modules[PYSPARK]
    return not module.error and module.zipped and not module.bytecode


def _packages(answers: Mapping[str, Interpreter]) -> Finding:
    subject = "start of Python: packages"
    compiling = {python.executable: lacking for python in answers.values() if (lacking := _without_bytecode(python))}
    if not compiling:
        return Finding(severity=Severity.OK, subject=subject, found="have bytecode")
    lacks = "; ".join(f"{', '.join(lacking)} in {python}" for python, lacking in compiling.items())
    commands = (
        " ".join([python, "-m compileall -q", *(str(Path(module.file).parent) for module in lacking.values())])
        for python, lacking in compiling.items()
    )
    return Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=f"without bytecode: {lacks}",
        meaning="Each process compiles them at its start",
        action=f"Run: {'; '.join(commands)}",
    )


def _without_bytecode(python: Interpreter) -> dict[str, Imported]:
    modules = {name: python.modules[name] for name in (*REQUIREMENTS, CONNECTOR)}
    return {name: module for name, module in modules.items() if not module.bytecode and not module.error}


def _threads(environment: Mapping[str, str]) -> Finding:
    subject, value = "OPENBLAS_NUM_THREADS", environment.get("OPENBLAS_NUM_THREADS")
    if value == "1":
        return Finding(severity=Severity.OK, subject=subject, found=value)
    return Finding(
        severity=Severity.WARNING,
        subject=subject,
        found=value or "not set",
        meaning="Each process that imports NumPy starts threads that spin for 0.1 s and are never used",
        action="Run where the driver starts: export OPENBLAS_NUM_THREADS=1",
    )
