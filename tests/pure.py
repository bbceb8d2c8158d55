"""An import contract that the modules carry themselves: what calls itself "Pure." in its docstring, or lies in a
package that does, reaches no forbidden module. `lint-imports` runs it; pyproject.toml says what is forbidden.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from grimp import ImportGraph
from importlinter import ContractCheck, fields
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.domain.imports import ModuleExpression

_PURE = re.compile(r"\bPure[.:]")


class PureContract(ForbiddenContract):
    """As `forbidden`, for the pure modules of `package`."""

    package = fields.StringField()
    source_modules = fields.SetField(subfield=fields.ModuleExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        package = str(self.package)
        own = {package, *graph.find_descendants(package)}
        self.source_modules = {ModuleExpression(name) for name in own if is_pure(name)}  # type: ignore[assignment]
        assert self.source_modules, f"no module of {package} says that it is pure"
        return super().check(graph, verbose)


def is_pure(module: str) -> bool:
    """Whether the module's docstring says that it is pure. A package's says it of all its modules."""
    path = Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return _PURE.search(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "") is not None
