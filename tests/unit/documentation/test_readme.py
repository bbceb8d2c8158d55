"""The README's picture is what its script draws, and its figure is the measured one."""

from __future__ import annotations

import importlib.util
import re

import pytest

from tests.pages import ROOT

README = (ROOT / "README.md").read_text()
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def draw():
    found = importlib.util.spec_from_file_location("draw", PICTURES / "draw.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_pictures_are_those_that_their_script_draws(draw):
    for name, palette in draw.PALETTES.items():
        shown = (PICTURES / f"transaction-{name}.svg").read_text()
        assert shown == draw.picture(palette), "run: python docs/pictures/draw.py"


def test_every_figure_of_the_readme_is_in_the_table_of_measurements():
    measured = (ROOT / "PERFORMANCE.md").read_text()
    figures = re.findall(r"\d+\.\d+ (?:× |×|M records/s against \d+\.\d+ M)", README)
    assert len(figures) >= 2
    assert [figure for figure in figures if figure.strip() not in measured] == []


def test_the_contributors_picture_has_every_package_and_file():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    root = ROOT / "spark_kafka_eos"
    packages = [f"{path.name}/" for path in root.iterdir() if (path / "__init__.py").exists()]
    files = [path.name for path in root.glob("*.py") if path.name != "__init__.py"]
    assert len(packages) > 5
    assert [name for name in (*packages, *files) if not re.search(rf"(?<![\w/]){re.escape(name)}", page)] == []


def test_every_make_command_of_the_readme_and_the_contributors_page_is_there():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", pages, re.MULTILINE))
    assert named >= {"demo", "test", "docs", "check"}
    assert named <= targets


def test_the_contributors_page_names_code_where_it_is():
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text().partition("## How to add")[2].split())
    named = re.findall(r"((?:`\w+`(?:, | and )?)+) (?:in|of|to the table in) `([\w/]+\.py)`", page)
    assert len(named) >= 10
    for names, path in named:
        file = next(place for place in (ROOT / path, ROOT / "spark_kafka_eos" / path) if place.exists())
        text = file.read_text()
        assert [name for name in re.findall(r"`(\w+)`", names) if not re.search(rf"\b{name}\b", text)] == [], path


def test_every_file_of_the_contributors_page_exists():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    files = set(re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.(?:py|md|json|yml|toml))`", page))
    assert len(files) >= 20
    assert [f for f in files if not (ROOT / f).exists() and not (ROOT / "spark_kafka_eos" / f).exists()] == []
