"""The mutants' runner, without cosmic-ray: what a test notices, and that each mutant stands alone."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lab.mutants import PACKAGES, ROOT, ROOT_PACKAGE, Mutant, copy_package, judged, usual_tests

NOTICES = "tests/unit/kafka/wire/test_varint.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced(Mutant):
    """A mutant that replaces `old` by `new`."""

    old: str
    new: str

    def code(self) -> str:
        source = (ROOT_PACKAGE / self.module).read_text(encoding="utf-8")
        assert self.old in source
        return source.replace(self.old, self.new)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_package(tmp_path_factory.mktemp("mutant"))


def varint(old, new):
    return Replaced(module="kafka/wire/varint.py", operator="by hand", occurrence=0, old=old, new=new)


def test_a_mutant_is_noticed_by_the_first_test_that_fails_and_is_gone_afterwards(copy):
    wrong = varint("return max(1, -(-zigzag.bit_length() // 7))", "return 2")
    assert str(judged(wrong, copy, [[NOTICES]])).startswith(f"{NOTICES}::test_")
    file = "kafka/wire/varint.py"
    assert (copy / file).read_bytes() == (ROOT_PACKAGE / file).read_bytes()


def test_a_change_that_no_test_shows_survives(copy):
    same = varint("wide = byte > 0x7F", "wide = byte >= 0x80")
    assert judged(same, copy, [[NOTICES]]) is None


def test_a_module_that_cannot_be_imported_is_noticed(copy):
    broken = varint("def _width(", "def _width(]")
    assert judged(broken, copy, [[NOTICES]]) is not None


def test_a_mutant_meets_the_tests_of_its_package_first():
    for package in PACKAGES:
        first, others = usual_tests(package)
        assert first == [f"tests/unit/{package}"]
        assert first[0] not in others
        assert all((ROOT / path).exists() for path in others)


def test_every_package_that_a_query_uses_is_among_them():
    packages = {str(path.parent.relative_to(ROOT_PACKAGE)) for path in ROOT_PACKAGE.rglob("__init__.py")}
    assert packages - set(PACKAGES) == {
        *(".", "kafka", "testing", "testing/demo", "tools", "tools/cli", "tools/doctor", "tools/verify")
    }
