"""The page of options says what the code does."""

from pathlib import Path

from spark_kafka_eos.options.__main__ import page
from spark_kafka_eos.options.kafka_properties import REFUSED, WITHOUT_EFFECT
from spark_kafka_eos.options.table import OPTIONS

PAGE = Path(__file__).parents[3] / "docs" / "options.md"


def test_the_page_is_made_from_the_table_of_options() -> None:
    assert PAGE.read_text() == page(), "run: python -m spark_kafka_eos.options > docs/options.md"


def test_every_option_has_a_row() -> None:
    options, _ = page().split("## Options of the sink that some writes do not use")
    assert sum(line.startswith("| `") for line in options.splitlines()) == len(OPTIONS)


def test_every_property_that_is_ignored_or_refused_is_listed_once_with_its_reason() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    for name, reason in {**WITHOUT_EFFECT, **REFUSED}.items():
        if name.startswith("kafka."):
            assert sum(f"`{name}`" in row and reason in row for row in rows) == 1, name
