"""The documentation is made from the table, so it cannot forget an option."""

from spark_kafka_eos.options.__main__ import default_of, markdown
from spark_kafka_eos.options.table import BOTH, OPTIONS, SINK, SOURCE


def test_every_option_is_in_exactly_one_of_the_tables_with_all_its_names():
    text = "\n".join(markdown(side) for side in (SOURCE, SINK, BOTH))
    for row in OPTIONS:
        assert text.count(f"\n| `{row.name}`") == 1
        assert all(f"`{name}`" in text for name in row.also)


def test_every_row_has_three_cells():
    for side in (SOURCE, SINK, BOTH):
        for line in markdown(side).splitlines():
            assert line.replace("\\|", "").count("|") == 4


def test_defaults_are_shown_as_a_user_would_write_them():
    shown = {row.name: default_of(row) for row in OPTIONS}
    assert shown["failOnDataLoss"] == "`true`"
    assert shown["kafka.request.timeout.ms"] == "`30000`"
    assert shown["deliveryGuarantee"] == "`exactly-once`"
    assert shown["includeHeaders"] == "`false`"
    assert shown["startingOffsets"] == "`latest`"
    assert shown["topic"] == shown["kafka.bootstrap.servers"] == ""
