"""Mutants of the connector: small changes of its code, each of which some test should notice (mutation testing).

cosmic-ray makes them: a comparison, a number, `and` for `or`, an inverted condition. A mutant lives in a copy of the
package, so that it is in all the processes that a test starts. One that no test notices either changes nothing that
anybody could see, or shows a test that is missing; that is for a person to judge.
"""

from __future__ import annotations

import difflib
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOT_PACKAGE = ROOT / "spark_kafka_eos"
CLIENT = ("auth", "fetching", "producing", "protocol", "wire")
PACKAGES = (
    *("appending", "dead_letters", *(f"kafka/{name}" for name in CLIENT), "ledger", "observe", "options"),
    *("participants", "preflight", "reading", "real_time", "registry", "spark", "startup", "transaction"),
    *("tools/listener", "tools/operators", "tools/replay"),
)

# Of cosmic-ray's, what people get wrong. Deleted decorators or operators of other types mostly fail at the import.
_OPERATORS = re.compile(
    r"core/(AddNot|NumberReplacer|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue"
    r"|ReplaceBreakWithContinue|ReplaceContinueWithBreak|ReplaceUnaryOperator_Delete_Not|ZeroIterationForLoop"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add)|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt"
    r"|Is_IsNot|IsNot_Is))"
)
_SECONDS = 1_200.0  # a mutant that goes on for longer hangs: a test would not end
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """The `occurrence`th place of `module`, a path in the package, that the `operator` of cosmic-ray changes."""

    module: str
    operator: str
    occurrence: int

    @property
    def package(self) -> str:
        return self.module.rpartition("/")[0]

    def code(self) -> str:
        """The module with this change."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        changed = mutate_code(self._source(), get_operator(self.operator)(), self.occurrence)
        assert changed is not None, "`every` has found the place"
        return str(changed)

    def change(self) -> str:
        """What is changed, as the lines of a diff without context."""
        before, after = self._source().splitlines(), self.code().splitlines()
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(line for line in lines if not line.startswith(("---", "+++")))

    def _source(self) -> str:
        return (ROOT_PACKAGE / self.module).read_text(encoding="utf-8")


def every(package: str) -> Iterator[Mutant]:
    """All mutants of one of `PACKAGES`, in the order of its files."""
    for file in sorted((ROOT_PACKAGE / package).rglob("*.py")):
        yield from of_module(str(file.relative_to(ROOT_PACKAGE)))


def of_module(module: str) -> Iterator[Mutant]:
    """All mutants of a module, a path in the package."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast((ROOT_PACKAGE / module).read_text(encoding="utf-8"))))
    for name in sorted(filter(_OPERATORS.fullmatch, operator_names())):
        operator = get_operator(name)()
        places = sum(len(list(operator.mutation_positions(node))) for node in nodes)
        yield from (Mutant(module=module, operator=name, occurrence=number) for number in range(places))


def sample(packages: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, as many of each package as far as it goes; the same seed and code give the same ones."""
    chance = random.Random(seed)  # noqa: S311 - the same ones again
    shuffled = {package: sorted(every(package), key=lambda _: chance.random()) for package in packages}
    return [
        candidates[number]
        for number in range(max(map(len, shuffled.values())))
        for candidates in shuffled.values()
        if number < len(candidates)
    ][:count]


def copy_package(folder: Path) -> Path:
    """A copy of the package in this folder."""
    copy = folder / ROOT_PACKAGE.name
    shutil.copytree(ROOT_PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def run_tests(copy: Path, tests: Sequence[str], *, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run tests of this checkout on this copy of the package, up to the first failure."""
    options = ["-x", "-q", "-rfE", "--no-header", "-p", "no:cacheprovider"]
    # The folder first, not the current one; and no compiled files, which differ only by size and second.
    python = {
        "PYTHONPATH": f"{copy.parent}{os.pathsep}{ROOT}",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT,
        env=os.environ | python | {"COLUMNS": "250"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def usual_tests(package: str) -> list[list[str]]:
    """Those without a broker: first those of the package, then the others, without what no query runs."""
    own = ROOT / "tests" / "unit" / package
    others = (path for path in sorted((ROOT / "tests" / "unit").iterdir()) if path.name.startswith("test_"))
    folders = [ROOT / "tests" / "unit" / name for name in PACKAGES if name != package]
    groups = [[own], [path for path in (*folders, *others) if path.exists()]]
    return [[str(path.relative_to(ROOT)) for path in group if path.exists()] for group in groups]


def judged(mutant: Mutant, copy: Path, groups: Sequence[Sequence[str]]) -> str | None:
    """The test that fails on the mutant first, None if none of these groups has one. `copy` is one of the package, and
    left as it was.
    """
    with changed(copy / mutant.module, mutant.code()):
        return first_failure(copy, groups)


@contextmanager
def changed(file: Path, code: str) -> Iterator[None]:
    """Let `file` have this code, and afterwards what it had before."""
    original = file.read_text(encoding="utf-8")
    file.write_text(code, encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(original, encoding="utf-8")


def first_failure(copy: Path, groups: Sequence[Sequence[str]]) -> str | None:
    """The test that fails first on this copy of the package, None if none does."""
    for tests in filter(None, groups):
        try:
            done = run_tests(copy, tests, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it hangs for {_SECONDS:.0f} s"
        if done.returncode:
            first = FAILED.search(done.stdout)
            return first[1] if first else "the import"
    return None
