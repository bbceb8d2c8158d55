"""The page of options says what the code does."""

from pathlib import Path

from spark_kafka_eos.options.table import OPTIONS
from spark_kafka_eos.tools.options_table import markdown

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_is_made_from_the_table_of_options() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m spark_kafka_eos.tools.options_table > docs/options.md"


def test_every_option_has_a_row_with_its_default() -> None:
    lines = markdown().splitlines()
    assert sum(line.startswith("| `") for line in lines) == len(OPTIONS)
    (isolation,) = (line for line in lines if line.startswith("| `kafka.isolation.level`"))
    assert "| `read_committed` |" in isolation
    (loss,) = (line for line in lines if line.startswith("| `failOnDataLoss`"))
    assert "| `true` |" in loss
