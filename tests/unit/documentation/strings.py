"""The texts that the code may show, read from its syntax tree: all strings but docstrings."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests.pages import ROOT


@functools.cache
def templates() -> tuple[tuple[Path, int, str], ...]:
    """Every such string with its file and line; what an f-string fills in is shown as …"""
    return tuple(found for path in sorted((ROOT / "spark_kafka_eos").rglob("*.py")) for found in _of(path))


def _of(path: Path) -> Iterator[tuple[Path, int, str]]:
    left_out: set[ast.AST] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr):  # a docstring
            left_out.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            left_out.update(node.values)
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield path, node.lineno, text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in left_out:
            yield path, node.lineno, node.value
