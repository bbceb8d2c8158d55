"""`python -m lab`: the laboratory's commands, from a checkout."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from lab.commands.bench import bench
from lab.commands.chaos import chaos
from lab.commands.mutants import mutants
from lab.commands.spec import spec
from spark_kafka_eos.tools.cli.errors import Commands, run

ROOT = Path(__file__).parents[1]

app = typer.Typer(
    cls=Commands,
    help="The laboratory: tests and measures the connector. From a checkout, in the environment that make installs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
app.add_typer(chaos)
app.command()(mutants)
app.command()(spec)

if __name__ == "__main__":
    # Spark's workers and other child processes import the laboratory, too, and it is not installed.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    run(app)
