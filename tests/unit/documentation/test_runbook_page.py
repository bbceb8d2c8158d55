"""The runbook has a section for each error and each alert, and no other; each message ends with its section."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from spark_kafka_eos import errors
from spark_kafka_eos.errors import BrokerError, ConfigurationError, KafkaEosError, LedgerRefused, ToolFailed
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "runbook.md").read_text()
ERRORS = {name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, KafkaEosError)}


def sections(chapter: str) -> dict[str, str]:
    """The chapter's sections by their heading."""
    found = re.search(rf"^## {chapter}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", found[1], re.MULTILINE | re.DOTALL))


def test_every_error_has_a_section_and_no_section_is_without_an_error():
    assert set(sections("Errors")) == ERRORS


@pytest.mark.parametrize("section", [*sections("Errors").values(), *sections("Alerts").values()])
def test_a_section_says_what_it_means_for_the_data_what_to_look_at_and_what_to_run(section):
    assert re.findall(r"^\*\*(\w+)\.\*\*", section, re.MULTILINE) == ["Data", "Look", "Run"]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (LedgerRefused("the ledger ends elsewhere", action="Set resolve."), "LedgerRefused"),
        (BrokerError("EndTxn", 53, "DENIED", "t"), "BrokerError"),
        (ConfigurationError("topik", "unknown option"), "ConfigurationError"),
        (ToolFailed("no java", action="Install it."), "ToolFailed"),
    ],
)
def test_a_message_ends_with_the_command_that_shows_its_section_and_survives_pickling(error, name):
    assert str(error).endswith(f" More: kafka-eos explain {name}")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
