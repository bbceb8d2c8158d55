"""The commands of kubectl that docs/deploying.md uses, on the resources of this folder's API."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from tests.kubernetes.resources import KINDS, Resource, Resources

_PLURALS = {kind: plural for plural, (_, kind) in KINDS.items()}


def kubectl(resources: Resources, words: list[str], folder: Path) -> None:
    """Do what the words after `kubectl` say, with the files of `folder`."""
    match words:
        case ["create", "secret", "generic", name, *files]:
            apply(resources, _named("Secret", name) | {"stringData": _content(files, folder)})
        case ["create", "configmap", name, *files]:
            apply(resources, _named("ConfigMap", name) | {"data": _content(files, folder)})
        case ["apply", *files]:
            parser = argparse.ArgumentParser()
            parser.add_argument("-f", action="append", type=Path)
            for file in parser.parse_args(files).f:
                for document in yaml.safe_load_all((folder / file).read_text()):
                    apply(resources, document)
        case _:
            raise ValueError(f"kubectl {' '.join(words)} is not known here")


def apply(resources: Resources, document: Resource) -> None:
    """Create what the document describes."""
    resources.create(_PLURALS[document["kind"]], document)


def _named(kind: str, name: str) -> Resource:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def _content(options: list[str], folder: Path) -> dict[str, str]:
    files = [folder / option.removeprefix("--from-file=") for option in options]
    return {file.name: file.read_text() for file in files}
