"""Each promise of a page is there, and has a test that runs; see tests/promises."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.pages import ROOT
from tests.promises import (
    API,
    COVERED,
    FOLDER,
    accepted,
    digest_of_rest,
    docstring,
    every_run,
    functions_of,
    is_skipped,
    pages,
    plain,
    promises,
    rest_of,
    text_of,
)

MADE = [page for page in pages() if (FOLDER / f"{page}.toml").exists()]


def test_every_page_has_a_file_of_promises_and_every_file_a_page():
    assert {path.stem for path in FOLDER.glob("*.toml")} == pages().keys()


@pytest.mark.parametrize("page", MADE)
def test_a_promise_is_a_sentence_of_its_page_once(page):
    listed = promises(page)
    assert [promise.sentence for promise in listed if plain(promise.sentence) not in text_of(promise)] == []
    assert [each for each, times in Counter((one.place, one.sentence) for one in listed).items() if times > 1] == []
    assert [promise.sentence for promise in listed if page == API and not promise.place] == []


@pytest.mark.parametrize("page", MADE)
def test_a_promise_has_a_test_that_exists_and_is_not_skipped(page):
    listed = promises(page)
    assert [promise.sentence for promise in listed if not promise.tests] == []
    tests = {test for promise in listed for test in promise.tests}
    assert [test for test in sorted(tests) if is_skipped(test) is not False] == []


@pytest.mark.parametrize("page", MADE)
def test_text_without_a_promise_was_read_and_found_to_make_none(page):
    """Else list what it promises; then `python -m tests.promises accept`."""
    assert accepted().get(page) == digest_of_rest(page), "\n\n".join(rest_of(page))


def test_a_sentence_that_loses_its_entry_is_noticed(monkeypatch):
    page = MADE[0]
    fewer = promises(page)[1:]
    monkeypatch.setattr("tests.promises.promises", lambda _: fewer)
    assert digest_of_rest(page) != accepted()[page]


def test_the_test_of_a_page_that_is_compared_as_a_whole_exists():
    assert [test for test in COVERED.values() if is_skipped(test) is None] == []
    assert [page for page in COVERED if not (ROOT / "docs" / f"{page}.md").is_file()] == []


def test_a_sentence_may_have_other_links_and_line_breaks_and_nothing_else():
    assert plain("It [waits](a.md#b)\n  for `x`.") == "It waits for `x`."
    assert plain("It waits.") != plain("It does not wait.")


def test_a_docstring_is_that_of_a_public_name_or_of_a_part_of_it():
    assert docstring("cluster_id") and docstring("TransactionalWriter.transaction")
    with pytest.raises(AttributeError, match="not public"):
        docstring("lazy")


@pytest.mark.parametrize(
    ("code", "skipped"),
    [
        ("def test_a(): ...", False),
        ('@{mark}.parametrize("x", [pytest.param(1, marks={mark}.skip)])\ndef test_a(x): ...', False),
        ("@{mark}.skip\ndef test_a(): ...", True),
        ("pytestmark = [{mark}.spark, {mark}.skip]\ndef test_a(): ...", True),
        ('@{mark}.skipif(SPARK_3_5, reason="…")\ndef test_a(): ...', False),
        ("@{mark}.xfail\ndef test_a(): ...", True),
        ('def test_a():\n    pytest.skip("…")', True),
    ],
)
def test_a_skip_is_read_from_the_tests_file(tmp_path, code, skipped):
    file = tmp_path / "test_of_marks.py"
    file.write_text(code.replace("{mark}", "pytest.mark"))  # else another test takes this file for a slow one
    assert functions_of(file) == {"test_a": skipped}


def test_a_test_is_one_of_every_run_if_pytest_runs_it_with_one_of_its_parameters_there(tmp_path):
    code = """
import pytest

def test_each_time(): ...

@{mark}.slow
def test_slow(): ...

@{mark}.parametrize("x", [1, pytest.param(2, marks={mark}.slow)])
def test_one_of_two(x): ...

MANY = {mark}.slow

@{mark}.parametrize("x", [pytest.param(1, marks=MANY)])
def test_none_of_one(x): ...

if pytest.__version__ == "1":
    def test_of_another_release(): ...
"""
    file = tmp_path / "test_collected.py"
    file.write_text(code.replace("{mark}", "pytest.mark"))
    run, path = every_run(str(file)), os.path.relpath(file, ROOT)
    assert [name for name in functions_of(file) if run.has(f"{path}::{name}")] == ["test_each_time", "test_one_of_two"]


def test_a_test_is_found_with_and_without_its_parameters_and_not_by_another_name():
    here = "tests/unit/documentation/test_promises.py::"
    assert is_skipped(f"{here}test_a_promise_is_a_sentence_of_its_page_once[x]") is False
    assert is_skipped(f"{here}test_the_test_of_a_page_that_is_compared_as_a_whole_exists") is False
    assert is_skipped(f"{here}test_a_promise") is None
    assert is_skipped("tests/unit/documentation/test_that_is_not_there.py::test_a") is None
