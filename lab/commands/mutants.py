"""`python -m lab mutants`: changes the connector's code here and there, and looks whether a test notices."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.mutants import PACKAGES, ROOT, Mutant, copy_package, first_failure, judged, sample, usual_tests
from spark_kafka_eos.errors import ToolFailed


def mutants(
    package: Annotated[
        list[str] | None, typer.Option(help="Of spark_kafka_eos; may be repeated. Default: all.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many mutants, the same number in each package.")] = 60,
    seed: Annotated[int, typer.Option(help="Chooses them.")] = 1,
    tests: Annotated[
        list[str] | None,
        typer.Option(
            help="Run these tests, a path; may be repeated. Default: those without a broker, the package's first."
        ),
    ] = None,
    survivors_of: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Take the mutants that survived there instead.")
    ] = None,
    output: Annotated[
        Path, typer.Option(dir_okay=False, help="A line of JSON for each; those that are there are not run again.")
    ] = ROOT / "build" / "mutants.jsonl",
) -> None:
    """Change the connector's code at random places, one at a time, and run the tests: one of them should fail.

    Requires cosmic-ray (pip install 'cosmic-ray>=8.4'). A mutant takes seconds if the tests of its package notice
    it, and some minutes if no test does.
    """
    if find_spec("cosmic_ray") is None:
        raise ToolFailed("cosmic-ray is not installed", action="Run: pip install 'cosmic-ray>=8.4'")
    for name in package or ():
        if name not in PACKAGES:
            raise typer.BadParameter(f"there are {', '.join(PACKAGES)}", param_hint="--package")
    console = Console(highlight=False, soft_wrap=True)
    chosen = _survivors(survivors_of) if survivors_of is not None else sample(package or PACKAGES, count, seed)
    verdicts = {mutant: noticed for mutant, noticed in _read(output) if mutant in chosen}
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, output.open("a", encoding="utf-8") as lines:
        copy = copy_package(Path(folder))
        waiting = [mutant for mutant in chosen if mutant not in verdicts]
        with console.status("the tests, without a mutant"):
            failure = first_failure(copy, [tests] if tests else usual_tests(PACKAGES[0])) if waiting else None
        if failure is not None:
            raise ToolFailed(f"without a mutant, {failure} fails", action="Mend it first.")
        for mutant in track(waiting, f"{len(waiting)} mutants", console=console):
            verdicts[mutant] = judged(mutant, copy, [tests] if tests else usual_tests(mutant.package))
            lines.write(json.dumps({**asdict(mutant), "noticed_by": verdicts[mutant]}) + "\n")
            lines.flush()
    survivors = [mutant for mutant in chosen if verdicts[mutant] is None]
    for mutant in survivors:
        console.print(f"\n{mutant.module}, {mutant.operator} {mutant.occurrence}\n{mutant.change()}", markup=False)
    table = Table("package", "mutants", "noticed", box=None)
    of_package, noticed = (
        Counter(mutant.package for mutant in chosen),
        Counter(mutant.package for mutant in chosen if verdicts[mutant]),
    )
    for name in sorted(of_package):
        table.add_row(name, str(of_package[name]), str(noticed[name]))
    console.print(table)
    console.print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants are noticed")


def _read(file: Path) -> list[tuple[Mutant, str | None]]:
    if not file.exists():
        return []
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        (Mutant(**{key: line[key] for key in ("module", "operator", "occurrence")}), line["noticed_by"])
        for line in lines
    ]


def _survivors(file: Path) -> list[Mutant]:
    return [mutant for mutant, noticed_by in _read(file) if noticed_by is None]
