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


class Driver:
    dead = False
    fiber = SimpleNamespace(done=False)

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.fixture
def the_id():
    return Id()


@pytest.fixture
def late(the_id):
    """A driver that took the id, and looked again since."""
    late = Driver("driver 1")
    the_id.looks(late)
    the_id.takes(late)
    the_id.looks(late)
    return late


def test_who_looked_before_another_one_took_the_the_idmay_take_it(the_id, late):
    the_id.takes(Driver("driver 2"))
    the_id.takes(late)
    assert the_id.owners.wrong == []


def test_who_saw_another_one_may_not(the_id, late):
    the_id.takes(Driver("driver 2"))
    the_id.looks(late)
    the_id.takes(late)
    assert the_id.owners.wrong == ["driver 1 came back late, saw driver 2, and disturbed it nevertheless"]


def test_nor_may_it_abort_its_transaction(the_id, late):
    the_id.takes(Driver("driver 2"))
    the_id.looks(late)
    the_id.takes(late, CONCURRENT_TRANSACTIONS)
    assert len(the_id.owners.wrong) == 1


def test_who_aborted_the_transaction_in_time_may_take_the_id_after_another_look(the_id, late):
    """The abort gave the id a new epoch, so its former owner has lost it already."""
    the_id.takes(Driver("driver 2"))
    the_id.takes(late, CONCURRENT_TRANSACTIONS)
    the_id.looks(late)
    the_id.takes(late)
    assert the_id.owners.wrong == []
