"""The page of options says what the code does."""

from pathlib import Path

from spark_kafka_eos.options.__main__ import page
from spark_kafka_eos.options.table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_is_made_from_the_table_of_options() -> None:
    assert PAGE.read_text() == page(), "run: python -m spark_kafka_eos.options > docs/options.md"


def test_every_option_has_a_row() -> None:
    assert sum(line.startswith("| `") for line in page().splitlines()) == len(OPTIONS)
