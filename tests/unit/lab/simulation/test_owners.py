"""What counts as disturbing the driver that lives, one InitProducerId at a time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lab.simulation.coordinator import CONCURRENT_TRANSACTIONS, NONE
from lab.simulation.owners import Owners


class Id:
    """A transactional.id whose state is the number of changes."""

    def __init__(self) -> None:
        self.changes = 0
        self.owners = Owners(lambda: self.changes)

    def request(self, driver, api, code=NONE, *, changes=True):
        def handle():
            self.changes += changes
            return SimpleNamespace(error_code=code)

        self.owners.sends(driver, api, handle)(True)

    def looks(self, driver):
        self.request(driver, "DescribeTransactions", changes=False)

    def takes(self, driver, code=NONE):
        self.request(driver, "InitProducerId", code)


def driver(name):
    return SimpleNamespace(name=name, dead=False, fiber=SimpleNamespace(done=False))


@pytest.fixture
def id_():
    return Id()


@pytest.fixture
def late(id_):
    """A driver that took the id, and looked again since."""
    late = driver("driver 1")
    id_.looks(late)
    id_.takes(late)
    id_.looks(late)
    return late


def test_who_looked_before_another_one_took_the_id_may_take_it(id_, late):
    id_.takes(driver("driver 2"))
    id_.takes(late)
    assert id_.owners.wrong == []


def test_who_saw_another_one_may_not(id_, late):
    id_.takes(driver("driver 2"))
    id_.looks(late)
    id_.takes(late)
    assert id_.owners.wrong == ["driver 1 came back late, saw driver 2, and disturbed it nevertheless"]


def test_nor_may_it_abort_its_transaction(id_, late):
    id_.takes(driver("driver 2"))
    id_.looks(late)
    id_.takes(late, CONCURRENT_TRANSACTIONS)
    assert len(id_.owners.wrong) == 1


def test_who_aborted_the_transaction_in_time_may_take_the_id_after_another_look(id_, late):
    """The abort gave the id a new epoch, so its former owner has lost it, and nothing more is lost by the second one."""
    id_.takes(driver("driver 2"))
    id_.takes(late, CONCURRENT_TRANSACTIONS)
    id_.looks(late)
    id_.takes(late)
    assert id_.owners.wrong == []
