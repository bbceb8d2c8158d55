"""A Dockerfile's stages, and the instructions of each, as far as conf/kubernetes/Dockerfile uses them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

_KNOWN = {"ARG", "COPY", "ENTRYPOINT", "ENV", "FROM", "RUN", "USER", "WORKDIR"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, and the rest of its line, with its continuations."""

    name: str
    rest: str

    def words(self, variables: Mapping[str, str]) -> list[str]:
        """The words of the rest, in which `$NAME` and `${NAME}` are replaced."""
        return shlex.split(substituted(self.rest, variables))

    def list_of_words(self) -> list[str]:
        """Of the form that is a list in JSON, the only one that starts no shell."""
        found = json.loads(self.rest)
        return [str(word) for word in found]


@dataclass(frozen=True, slots=True)
class Stage:
    """What is built from one image, `name` for later stages."""

    image: str
    name: str
    instructions: tuple[Instruction, ...]


def substituted(text: str, variables: Mapping[str, str]) -> str:
    """With the values of variables; a variable without a value is nothing, as in Docker."""
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda found: variables.get(found[1] or found[2], ""), text)


def instructions(text: str) -> list[Instruction]:
    """Raises ValueError for an instruction that is not known here."""
    joined = re.sub(
        r"\\\n", "", "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))
    )
    found = [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]
    if unknown := {each.name for each in found} - _KNOWN:
        raise ValueError(f"these instructions of a Dockerfile are not known here: {', '.join(sorted(unknown))}")
    return found


def stages(text: str) -> list[Stage]:
    """Those of the file, in its order. The arguments before the first one have their default values."""
    arguments: dict[str, str] = {}
    found: list[Stage] = []
    for each in instructions(text):
        if each.name == "ARG" and not found:
            name, _, value = each.rest.partition("=")
            arguments[name] = value
        elif each.name == "FROM":
            image, *named = each.words(arguments)
            found.append(Stage(image, named[1] if named else "", ()))
        else:
            last = found[-1]
            found[-1] = Stage(last.image, last.name, (*last.instructions, each))
    return found
