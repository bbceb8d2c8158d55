"""`python -m lab fuzz`: coverage-guided fuzzing of the decoders and the protocol layer."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from lab.fuzz import TARGETS, seeds
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.cli.errors import FAILED

Name = StrEnum("Name", {name: name for name in TARGETS})  # type: ignore[misc]

_SLOW_SECONDS = 10  # an input that takes longer counts as a hang
_MEMORY_MB = 1_024


def fuzz(
    target: Annotated[Name, typer.Argument(help="What to fuzz: decoders, or a broker's responses to one API.")],
    seconds: Annotated[int, typer.Option(min=1, help="Duration.")] = 60,
    corpus: Annotated[
        Path | None, typer.Option(file_okay=False, help="Directory for the inputs that increased coverage.")
    ] = None,
) -> None:
    """Feed corrupt bytes to a decoder or the protocol layer. Anything but an expected error ends it with exit code 1.

    Requires atheris (pip install 'atheris>=2.3'). An input that causes a failure is written to a file:
    python -m lab.fuzz_run TARGET FILE shows it again.
    """
    if find_spec("atheris") is None:
        raise ToolFailed("atheris is not installed", action="Run: pip install 'atheris>=2.3'")
    with tempfile.TemporaryDirectory() as temporary:
        folder = corpus or Path(temporary) / target.value
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds(target.value)):
            (folder / f"seed-{number}").write_bytes(seed)
        limits = [f"-max_total_time={seconds}", f"-timeout={_SLOW_SECONDS}", f"-rss_limit_mb={_MEMORY_MB}"]
        # In a separate process, because libFuzzer takes over its process and ends it.
        command = [sys.executable, "-m", "lab.fuzz_run", target.value, str(folder)]
        done = subprocess.run([*command, *limits, "-print_final_stats=1"], check=False)
    if done.returncode:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"{target.value}: an input was neither accepted nor rejected with an expected error, see above."
        )
        raise typer.Exit(FAILED)
    Console(highlight=False).print(f"{target.value}: nothing found.")
