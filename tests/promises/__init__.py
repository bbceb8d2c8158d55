"""What the pages and the public docstrings promise, and the tests that show it: a file for each page, `<page>.toml`.

A promise is a statement about what the product does, refuses, keeps or guarantees in a situation. No promises are
definitions, instructions, steps of a how-to, background about Kafka and Spark, and figures of performance, which have
tests of their own.

A test shows a promise if its set-up is a user's: nothing set that the page does not set; two clusters where the page
says two, a real table where it says table; the failure where users have it, in their own code; and somebody else's
program as the witness of what Kafka has.

    [[promise]]
    sentence = "…"           # as the page has it: see `plain` for what may differ
    place = "name"           # in api.toml: the public name whose docstring has it, `TransactionalWriter.transaction`;
                             # of a page the heading, if the sentence means something else below another one
    tests = ["tests/spark/test_x.py::test_name"]

`python -m tests.promises` counts them, `python -m tests.promises sink` lists the page's text that has no promise. Read
it after a page has changed, then `python -m tests.promises accept`: `rest.json` has a digest of that text for each
page, so that neither a new sentence nor one that is no longer listed goes unnoticed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import spark_kafka_eos
from tests.pages import ROOT

FOLDER = Path(__file__).parent
_CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
REST = FOLDER / "rest.json"
API = "api"

# Pages that are generated, or whose every row is compared, and the test that does it.
COVERED = {
    "counterexamples": "tests/spec/test_weakened.py::test_the_page_has_every_counterexample",
    "glossary": "tests/unit/documentation/test_glossary.py::test_the_terms_of_the_glossary_are_used",
    "kip-98": "tests/requirements/test_mutants.py::test_without_what_the_row_requires_one_of_its_tests_fails",
    "options": "tests/unit/options/test_options_page.py::test_the_page_is_made_from_the_table_of_options",
    **dict.fromkeys(
        ("performance-exactly-once", "performance-limits", "performance-scale", "performance-targets"),
        "tests/unit/documentation/test_performance_page.py::test_each_table_is_that_of_its_files",
    ),
    "tested": "tests/unit/ci/test_tested.py::test_the_page_shows_the_record",
}


class Promise(NamedTuple):
    """A sentence of a page, or of its section `place`, or of the docstring of `place`, and the tests that show it."""

    page: str
    sentence: str
    tests: list[str]
    place: str = ""


def pages() -> dict[str, Path]:
    """The pages that make promises, by the names of their files here."""
    files = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return {path.stem.lower(): path for path in files if path.stem not in COVERED}


def promises(page: str) -> list[Promise]:
    """The promises of a page, from its file. KeyError or TypeError: an entry lacks something, or has too much."""
    entries = tomllib.loads((FOLDER / f"{page}.toml").read_text()).get("promise", [])
    return [Promise(page=page, **entry) for entry in entries]


def plain(text: str) -> str:
    """A text without the targets of its links and without line breaks."""
    return " ".join(re.sub(r"(?<!!)\[([^]]*)\]\([^)]*\)", r"\1", text).split())


def text_of(promise: Promise) -> str:
    """Where the promise's sentence has to be: its page, or the section or docstring that is its place. KeyError: the
    page has no such heading.
    """
    if promise.page == API:
        return docstring(promise.place)
    text = pages()[promise.page].read_text()
    return plain(dict(sections(text))[promise.place] if promise.place else text)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """A page's headings, and the text below each, up to the next one and without code. What is above all has ""."""
    first, *others = re.split(r"^(?=#)", re.sub(_CODE, "", text), flags=re.MULTILINE)
    yield "", first
    for section in others:
        heading, _, below = section.partition("\n")
        yield heading.lstrip("# "), below


def docstring(place: str) -> str:
    """The docstring of a public name or of what belongs to it. AttributeError: there is no such name."""
    first, *rest = place.split(".")
    if first not in spark_kafka_eos.__all__:
        raise AttributeError(f"{first} is not public")
    public = getattr(spark_kafka_eos, first)
    if inspect.ismodule(public):  # once imported, a submodule of the same name takes the name's place in the package
        public = getattr(public, first)
    for name in rest:
        public = getattr(public, name)
    return plain(inspect.getdoc(public) or "")


def rest_of(page: str) -> Iterator[str]:
    """A page's paragraphs, or the public names' docstrings, without promises, code and headings."""
    if page == API:
        texts = [("", f"{name}: {docstring(name)}") for name in spark_kafka_eos.__all__]
    else:
        texts = [
            (heading, plain(paragraph))
            for heading, section in sections(pages()[page].read_text())
            for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-|] ?)", section)
        ]
    listed = promises(page)
    for place, paragraph in texts:
        here = [re.escape(plain(each.sentence)) for each in listed if page == API or each.place in ("", place)]
        without = re.sub("|".join(here) or "(?!)", "…", paragraph)
        if re.search(r"\w", without):
            yield without


def digest_of_rest(page: str) -> str:
    """Changes with the page's text that has no promise."""
    return hashlib.sha256("\n\n".join(rest_of(page)).encode()).hexdigest()[:16]


def accepted() -> dict[str, str]:
    """By page, the digest of the text that somebody has read and found to make no promise."""
    return dict(json.loads(REST.read_text()))


@cache
def functions_of(file: Path) -> dict[str, bool]:
    """The test functions of a file by name, and whether each is skipped. `skipif` is no skip: of this environment's
    tests, CI lets none be skipped. FileNotFoundError.
    """
    tree = ast.parse(file.read_text())
    marks = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return {
        node.name: any(map(_skips, (*marks, *node.decorator_list, *node.body)))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def _skips(code: ast.AST) -> bool:
    """Whether code skips a test: a mark of one of its parameters does not count."""
    return re.search(r"(?<!marks=)pytest\.(?:mark\.)?(?:skip|xfail)\b", ast.unparse(code)) is not None


def is_skipped(test: str) -> bool | None:
    """Of a test by its id, with or without parameters; None if there is none."""
    path, name = _path_and_name(test)
    file = ROOT / path
    return functions_of(file).get(name) if file.is_file() else None


def _path_and_name(test: str) -> tuple[str, str]:
    path, _, name = test.partition("[")[0].partition("::")
    return path, name.rpartition("::")[2]


class EveryRun:
    """A plugin of pytest: which tests a run with its arguments has, as pytest has collected them."""

    def __init__(self) -> None:
        self._tests: set[tuple[str, str]] = set()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tests = {(os.path.relpath(item.path, ROOT), item.name.partition("[")[0]) for item in session.items}

    def has(self, test: str) -> bool:
        """Whether the run has the test, by its id; with one of its parameters at least."""
        return _path_and_name(test) in self._tests


def every_run(*arguments: str) -> EveryRun:
    """What `make test` runs of these files and folders, by default everything. RuntimeError: not all can be read."""
    collected, output = EveryRun(), io.StringIO()
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "--collect-only", "-q"]
    with contextlib.redirect_stdout(output):
        code = pytest.main([*settings, *(arguments or [str(ROOT / "tests")])], plugins=[collected])
    if code is not pytest.ExitCode.OK:
        raise RuntimeError(output.getvalue())
    return collected
