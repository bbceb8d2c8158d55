"""What can be passed as a participant."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.participants.participant import TableVersion, require_one


class Table:
    def held(self) -> TableVersion:
        return TableVersion()

    def commit(self, rows: object, token: str | None, *, after: int) -> None: ...


class Tables(list[Table], Table):
    """One participant, although it is a list, too."""


@pytest.mark.parametrize("participant", [Table(), Tables([Table()])])
def test_an_object_with_both_methods_takes_part(participant: object) -> None:
    require_one(participant)


@pytest.mark.parametrize("several", [[Table(), Table()], (Table(),), {"a": Table()}, iter([Table()])])
def test_several_are_refused_with_what_to_do_instead(several: object) -> None:
    with pytest.raises(ConfigurationError, match="one table takes part in a batch") as refused:
        require_one(several)
    assert "from the topic, with a query of its own" in refused.value.action


@pytest.mark.parametrize(
    ("other", "why"), [(Table, "is the class Table"), (7, "is a int"), (len, "has not the methods")]
)
def test_anything_else_is_refused(other: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        require_one(other)
