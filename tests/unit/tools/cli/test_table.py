"""How --table names a participant, and what is said of what it holds."""

from __future__ import annotations

import pytest
import typer

from spark_kafka_eos.ledger.diagnosis import Diagnosis
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.verdicts import Write
from spark_kafka_eos.participants.diagnosis import TableDiagnosis
from spark_kafka_eos.participants.participant import TableVersion
from spark_kafka_eos.participants.token import UnreadableToken
from spark_kafka_eos.tools.cli.table import participant_of, table_json, table_lines


class Table:
    def held(self):
        return TableVersion(version=4)

    def commit(self, rows, token, *, after): ...


TABLE = Table()


def made():
    return TABLE


@pytest.mark.parametrize("name", ["TABLE", "made", "Table"])
def test_a_participant_or_what_makes_one_is_named_by_module_and_name(name):
    assert isinstance(participant_of(f"{__name__}:{name}"), Table)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("shop", "is not MODULE:NAME"),
        ("shop:", "is not MODULE:NAME"),
        ("no_such_module.at_all:rows", "there is no module 'no_such_module'"),
        ("json:rows", "'json' has no 'rows'"),
        ("json:JSONEncoder", "is a JSONEncoder, which has not the methods"),
        ("json:__name__", "is a str, which has not the methods"),
    ],
)
def test_anything_else_is_a_wrong_option(text, why):
    with pytest.raises(typer.BadParameter, match=why):
        participant_of(text)


def test_a_package_that_the_module_needs_is_not_taken_for_the_module(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_missing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        participant_of("needs_more:table")


def test_a_token_that_cannot_be_used_says_why():
    found = TableDiagnosis(
        table=TableVersion(version=4, token='{"mac": "m"}'),
        token=UnreadableToken(reason="it is not signed with ledgerKey"),
        transaction="over",
        kafka=Diagnosis(entry=None),
        standing=Refuse(reason="the table's token cannot be used", meaning="m", actions=("a",)),
    )
    assert dict(table_lines(found)) == {
        "table": "at version 4: a token that cannot be used, it is not signed with ledgerKey, signed",
        "next start": "is refused: the table's token cannot be used",
    }
    assert table_json(found)["token"] == {"unreadable": "it is not signed with ledgerKey"}


def test_a_table_that_has_just_been_created_goes_on():
    found = TableDiagnosis(
        table=TableVersion(), token=None, transaction="over", kafka=Diagnosis(entry=None), standing=Write(reason="w")
    )
    assert dict(table_lines(found)) == {"table": "at version 0: no token", "next start": "goes on as the ledger says"}
