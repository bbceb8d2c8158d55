"""The rooms whose code is changed here and there, each with the tests that must notice (tests/mutated).

Which mutants are run is decided by a digest of the change itself, so other changes of the code do not choose others.
What no test notices is judged in `tests/mutated/judged.toml`: either it changes nothing that anybody could see, or
the reason says why no test is worth it.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lab.mutants import ROOT_PACKAGE, Mutant, of_module

JUDGED = Path(__file__).with_name("mutated") / "judged.toml"


class Room(NamedTuple):
    """Patterns of modules in the package; the tests that run on each mutant; the same for what these let pass; and of
    how many mutants one is run.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    then: tuple[str, ...]
    one_in: int

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(ROOT_PACKAGE)) for pattern in self.modules for path in ROOT_PACKAGE.glob(pattern)
        )


class Survivor(NamedTuple):
    """A change of a module that no test notices, as `change_of` shows it, and the judgement."""

    module: str
    change: str
    why: str


def _of_registry(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/registry/test_{name}.py" for name in names)


# Before what compares with programs of others, which takes minutes.
_OF_EVERY_FORMAT = (
    *_of_registry("arrow", "bounds", "columns", "confluent_api", "hostile_records", "limits"),
    "tests/unit/spark",
    *_of_registry("fuzzed_schemas"),
)

ROOMS = {
    # Kerberos needs a KDC: the part `kerberos` of the slow tests.
    "login": Room(
        ("kafka/auth/[!g]*.py",),
        ("tests/unit/kafka/auth",),
        ("tests/unit/kafka/protocol/test_connection.py", "tests/unit/options/test_properties.py"),
        6,
    ),
    "options": Room(
        (
            "options/client.py",
            "options/kafka_properties.py",
            "options/outputs.py",
            "options/parsers.py",
            "options/properties.py",
            "options/reserved.py",
            "options/*_parser.py",
            "options/values.py",
        ),
        ("tests/unit/options",),
        ("tests/unit/preflight", "tests/unit/kafka/protocol/test_connection.py"),
        6,
    ),
    "connection": Room(
        tuple(f"kafka/protocol/{name}.py" for name in ("connection", "cluster", "frames", "responses")),
        ("tests/unit/kafka/protocol",),
        ("tests/unit/kafka/fetching",),
        6,
    ),
    "staging": Room(
        ("appending/files.py", "appending/private_folders.py", "appending/staging*.py", "appending/temporary.py"),
        tuple(f"tests/unit/appending/test_{name}.py" for name in ("files", "staging", "staging_space", "temporary")),
        ("tests/unit/tools/doctor/test_folders.py", "tests/unit/observe"),
        3,
    ),
    "fence": Room(
        ("transaction/calls.py", "transaction/commit.py", "transaction/doubt.py", "transaction/fence.py",
         "transaction/hold.py", "transaction/loss.py", "transaction/owner.py", "transaction/shared.py",
         "transaction/steps.py", "transaction/takeover.py"),
        ("tests/unit/transaction",),
        ("tests/unit/ledger",),
        8,
    ),
    "recovery": Room(
        ("ledger/decide.py", "ledger/ends.py", "ledger/progress.py", "ledger/*refusal*.py", "ledger/remedies.py",
         "ledger/*ver*.py"),
        ("tests/unit/ledger",),
        ("tests/unit/transaction", "tests/unit/preflight"),
        8,
    ),
    "ledger": Room(
        ("ledger/answers.py", "ledger/between.py", "ledger/copies.py", "ledger/create.py", "ledger/diagnosis.py",
         "ledger/*entry*.py", "ledger/keeper.py", "ledger/records.py", "ledger/signing.py", "ledger/source_*.py",
         "ledger/topic.py"),
        ("tests/unit/ledger",),
        ("tests/unit/transaction", "tests/unit/tools/operators", "tests/unit/real_time"),
        10,
    ),
    "replay": Room(
        ("tools/replay/*.py", "dead_letters/*.py"),
        ("tests/unit/tools/replay", "tests/unit/dead_letters", "tests/unit/tools/cli/test_dead_letters.py"),
        ("tests/broker/test_dead_letters.py",),
        6,
    ),
    "avro": Room(
        ("registry/avro*.py",),
        _of_registry("changed_avro_schemas", "top_level_avro", "decoding_avro", "encoding_avro"),
        (*_OF_EVERY_FORMAT, *_of_registry("avro_against_java")),
        25,
    ),
    "json": Room(
        ("registry/connect*.py", "registry/json*.py"),
        _of_registry("json", "connect"),
        (*_OF_EVERY_FORMAT, *_of_registry("json_differential")),
        25,
    ),
    "protobuf": Room(
        ("registry/proto*.py",),
        _of_registry("proto_text", "protobuf"),
        (*_OF_EVERY_FORMAT, *_of_registry("proto_text_against_protoc", "protobuf_conformance", "protobuf_samples",
                                          "protobuf_against_java")),
        25,
    ),
    "registry": Room(
        ("registry/[!acjp]*.py", "registry/arrow.py", "registry/client.py", "registry/columns.py",
         "registry/java_properties.py"),
        _of_registry("framing", "limits", "java_properties", "arrow", "hostile_records", "confluent_api", "columns"),
        ("tests/unit/registry", "tests/unit/spark"),
        25,
    ),
}  # fmt: skip


def change_of(mutant: Mutant) -> str:
    """The lines that the mutant removes and adds, without their numbers."""
    lines = mutant.change().splitlines()
    return "\n".join(f"{line[0]} {line[1:].strip()}" for line in lines if not line.startswith("@@"))


def chosen(room: Room) -> Iterator[tuple[Mutant, str]]:
    """The room's mutants that are run, with their changes."""
    for module in room.files():
        seen = set()
        for mutant in of_module(module):
            change = change_of(mutant)
            # Slots and the like, and imports for types, which no behaviour depends on.
            shape_only = "@dataclass(" in change or "TYPE_CHECKING" in change
            if change not in seen and not shape_only and digest(module, change) % room.one_in == 0:
                seen.add(change)
                yield mutant, change


def digest(module: str, change: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{module}\n{change}".encode()).digest()[:8])


def judged() -> list[Survivor]:
    """What is known to be noticed by no test."""
    found = tomllib.loads(JUDGED.read_text(encoding="utf-8")).get("survivor", [])
    return [Survivor(each["module"], each["change"].strip(), each["why"]) for each in found]
