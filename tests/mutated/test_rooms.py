"""Small changes of the code that guards what others must not do: a test notices each, or it is judged not to matter.

cosmic-ray makes them (lab/mutants.py); tests/rooms.py says of which modules, and which tests run. A room fits an
hour on two cores.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from lab.mutants import ROOT, Mutant, changed, copy_package
from lab.warm_tests import first_failure
from tests.matrix import Cell
from tests.rooms import ROOMS, Room, chosen, judged

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7_200)]

_AT_ONCE = 2
_WITHOUT_MUTANT_S = 1_800.0  # the room's tests may take so long
# A mutant whose tests take longer than both hangs.
_SECONDS, _TIMES_AS_LONG = 300.0, 3.0


@pytest.fixture
def copies(tmp_path: Path) -> SimpleQueue[Path]:
    """Copies of the package, each for one mutant at a time."""
    free: SimpleQueue[Path] = SimpleQueue()
    for number in range(_AT_ONCE):
        (tmp_path / str(number)).mkdir()
        free.put(copy_package(tmp_path / str(number)))
    return free


def noticed_by(mutant: Mutant, room: Room, copies: SimpleQueue[Path], seconds: float) -> str | None:
    """The test that fails first, or hangs for so many seconds: the module's own ones are asked first, then the room's,
    then the others.
    """
    name = Path(mutant.module).stem
    own = f"tests/unit/{mutant.package}/test_{name}.py"
    groups = [[own] if (ROOT / own).exists() else [], room.tests, room.then]
    copy = copies.get()
    try:
        with changed(copy / mutant.module, mutant.code()):
            found = (first_failure(copy, tests, seconds) for tests in groups if tests)
            return next(filter(None, found), None)
    finally:
        copies.put(copy)


@pytest.mark.parametrize("name", ROOMS)
def test_a_test_notices_each_mutant_of_the_room_or_it_is_judged(name, copies, cell: Cell):
    room = ROOMS[name]
    copy = copies.get()
    seconds = _SECONDS
    for tests in (room.tests, room.then):
        began = time.monotonic()
        assert first_failure(copy, tests, _WITHOUT_MUTANT_S) is None, "without a mutant"
        seconds = max(seconds, _TIMES_AS_LONG * (time.monotonic() - began))
    copies.put(copy)
    mutants = list(chosen(room))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda each: noticed_by(each[0], room, copies, seconds), mutants))
    results = [
        {"module": mutant.module, "change": change, "noticed_by": test}
        for (mutant, change), test in zip(mutants, found, strict=True)
    ]
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / f"mutated-{name}.json").write_text(json.dumps(results, indent=1))
    known = {(each.module, each.change) for each in judged()}
    survivors = [each for each in results if each["noticed_by"] is None]
    new = [each for each in survivors if (each["module"], each["change"]) not in known]
    cell("Mutants", name, "noticed", f"{len(results) - len(survivors)} of {len(results)}")
    cell("Mutants", name, "judged", str(len(survivors)))
    assert new == [], "no test notices these, and nobody has judged them"
