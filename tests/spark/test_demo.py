"""The demo itself: a month of flights, drivers that die in the middle of batches, and no figure that is off."""

import io

import pytest
from rich.console import Console

from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.demo.run import run

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def fast_demo(*, with_table: bool = False) -> str:
    """What the demo prints; every figure of it holds."""
    out = io.StringIO()
    assert run(
        fast=True,
        cluster=False,
        kafka_version=jars.DEFAULT_VERSION,
        append_mode="auto",
        keep=False,
        console=Console(file=out, width=120),
        with_table=with_table,
    ), out.getvalue()
    return out.getvalue()


def test_the_fast_demo_survives_its_kills_with_every_figure_right() -> None:
    text = fast_demo()
    assert "kill 1" in text
    assert "belong to its open transaction" in text
    assert ": 0 offsets of" not in text
    assert "WRONG" not in text


def test_with_a_table_it_survives_the_same_kills_and_both_have_the_same_rows() -> None:
    assert "rows in the table" in fast_demo(with_table=True)
