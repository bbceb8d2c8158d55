"""The newest releases of everything that this package needs, beside those that its tests use.

`make newest` installs them, also those that pyproject.toml does not allow yet, and runs the tests that every release
must pass. A failure says what to do before a bound can be raised.

Usage: newest.py overrides PYPROJECT | newest.py show PYPROJECT TESTED NEWEST
"""

import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from rich.console import Console
from rich.table import Table

from spark_kafka_eos.testing.jars import DEFAULT_VERSION, Bundle, Module, fetch

_CLIENTS = "kafka-clients"  # released with the brokers


def requirements(pyproject: Path) -> dict[str, Requirement]:
    """What pyproject.toml asks for, by name, extras too; of several bounds for a name, the last one."""
    project = tomllib.loads(pyproject.read_text())["project"]
    given = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    found = {canonicalize_name(each.name): each for each in map(Requirement, given)}
    return {name: each for name, each in found.items() if name != canonicalize_name(project["name"])}


def overrides(pyproject: Path) -> Iterator[str]:
    """The same without bounds, as uv's `--override` reads it."""
    for name, each in sorted(requirements(pyproject).items()):
        extras = f"[{','.join(sorted(each.extras))}]" if each.extras else ""
        yield f"{name}{extras}"


def pins(text: str) -> dict[str, Version]:
    """The versions of a file of pinned requirements."""
    pinned = (Requirement(line.rstrip(" \\")) for line in text.splitlines() if line[:1].isalnum())
    return {canonicalize_name(each.name): Version(one.version) for each in pinned for one in each.specifier}


def news(asked: dict[str, Requirement], tested: dict[str, Version], newest: dict[str, Version]) -> Iterator[list[str]]:
    """A row for each that is newer than what the tests use: name, tested, newest, and whether it is allowed."""
    for name, each in sorted(asked.items()):
        if name in newest and name in tested and newest[name] > tested[name]:
            allowed = "yes" if each.specifier.contains(newest[name]) else f"no: {each.specifier}"
            yield [name, str(tested[name]), str(newest[name]), allowed]


def newest_kafka() -> str:
    """The newest release of Kafka, as Maven names it."""
    module = Module(organisation="org.apache.kafka", name=_CLIENTS, revision="latest.release", alone=True)
    with tempfile.TemporaryDirectory() as folder:
        fetch(Bundle(name=_CLIENTS, version="newest", modules=(module,)), Path(folder))
        (jar,) = Path(folder).glob(f"{_CLIENTS}-*.jar")
    return jar.stem.removeprefix(f"{_CLIENTS}-")


def show(pyproject: Path, tested: Path, newest: Path) -> None:
    table = Table("what", "tested", "newest", "allowed by pyproject.toml", title="Newer than what the tests use")
    for row in news(requirements(pyproject), pins(tested.read_text()), pins(newest.read_text())):
        table.add_row(*row)
    if Version(kafka := newest_kafka()) > Version(DEFAULT_VERSION):
        table.add_row("Apache Kafka", DEFAULT_VERSION, kafka, "yes")
    Console().print(table if table.row_count else "Nothing is newer than what the tests use.")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["overrides", pyproject]:
            print(*overrides(Path(pyproject)), sep="\n")
        case ["show", pyproject, tested, newest]:
            show(Path(pyproject), Path(tested), Path(newest))
        case _:
            sys.exit(__doc__)
