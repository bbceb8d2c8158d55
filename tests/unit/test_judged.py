"""What is known about mutants and guards fits the code: without running them, which takes hours."""

from __future__ import annotations

import pytest

from lab.mutants import ROOT_PACKAGE
from tests.guards import GUARDS
from tests.pages import ROOT
from tests.rooms import ROOMS, judged
from tests.unit.ci.test_verdict import script

SURVIVORS = judged()


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda each: f"{each.module}: {each.change.splitlines()[-1]}")
def test_a_judged_change_is_one_of_the_code_and_has_a_reason(survivor):
    lines = {line.strip() for line in (ROOT_PACKAGE / survivor.module).read_text().splitlines()}
    removed = [line[2:] for line in survivor.change.splitlines() if line.startswith("- ")]
    assert removed and set(removed) <= lines
    assert survivor.why.endswith(".")


def test_no_change_is_judged_twice():
    changes = [(each.module, each.change) for each in SURVIVORS]
    assert len(set(changes)) == len(changes)


@pytest.mark.parametrize("name", ROOMS)
def test_each_room_has_modules_and_tests(name):
    room = ROOMS[name]
    assert room.files()
    assert all((ROOT / test).exists() for test in (*room.tests, *room.then))


def test_each_module_of_the_registry_is_in_one_room():
    modules = sorted(f"registry/{path.name}" for path in (ROOT_PACKAGE / "registry").glob("*.py"))
    found = [module for room in ROOMS.values() for module in room.files() if module.startswith("registry/")]
    assert sorted(found) == modules


def test_each_room_has_a_part_of_the_slow_tests():
    assert tuple(ROOMS) == script("slow_run").ROOMS


@pytest.mark.parametrize("guard", GUARDS)
def test_a_guard_is_in_the_code_once_and_its_test_exists(guard):
    mutant, test = GUARDS[guard]
    source = (ROOT_PACKAGE / mutant.file).read_text()
    assert mutant.of(source) != source
    file, _, name = test.partition("::")
    assert not name or f"def {name}(" in (ROOT / file).read_text()
