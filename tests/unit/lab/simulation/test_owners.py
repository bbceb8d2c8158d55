"""What counts as disturbing the driver that lives, one InitProducerId at a time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lab.simulation.coordinator import CONCURRENT_TRANSACTIONS, NONE, Phase
from lab.simulation.owners import Owners


class Id:
    """A transactional.id whose epoch is the number of changes."""

    def __init__(self) -> None:
        self.changes, self.phase = 0, Phase.EMPTY
        self.owners = Owners(lambda: {"id": (self.phase, 1, self.changes)})

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


@pytest.fixture
def in_doubt(the_id, late):
    """A late driver whose InitProducerId was not answered, and that looked after another one had taken the id."""
    the_id.owners.unanswered(late, "InitProducerId")
    the_id.takes(Driver("driver 2"))
    the_id.looks(late)
    return late


def test_a_look_counts_for_one_init_producer_id_even_if_that_has_no_answer(the_id, late):
    the_id.owners.unanswered(late, "InitProducerId")
    the_id.takes(Driver("driver 2"))
    the_id.takes(late)
    assert the_id.owners.wrong == ["driver 1 came back late, and disturbed driver 2 without a look"]


def test_who_cannot_tell_another_drivers_first_epoch_from_its_own_may_not_take_it(the_id, in_doubt):
    the_id.takes(in_doubt)
    assert len(the_id.owners.wrong) == 1


def test_it_may_abort_a_transaction_that_began_after_its_look(the_id, in_doubt):
    the_id.phase = Phase.ONGOING
    the_id.takes(in_doubt, CONCURRENT_TRANSACTIONS)
    assert the_id.owners.wrong == []


def test_it_may_not_if_it_saw_the_transaction(the_id, in_doubt):
    the_id.phase = Phase.ONGOING
    the_id.looks(in_doubt)
    the_id.takes(in_doubt, CONCURRENT_TRANSACTIONS)
    assert len(the_id.owners.wrong) == 1


def test_it_may_take_the_id_if_it_holds_nothing_from_batch_to_batch(the_id, in_doubt):
    the_id.owners.forgets(in_doubt)
    the_id.takes(in_doubt)
    assert the_id.owners.wrong == []
