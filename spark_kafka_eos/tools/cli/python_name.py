"""What a user names as `package.module:name`, as servers name their application: an object of the user's own code."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer


def load(text: str, flag: str) -> Any:
    """The object that `text` names; modules of the current directory are found, too. Raises typer.BadParameter.

    What the module itself raises, such as for a package that is missing, is raised as it is.
    """
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise typer.BadParameter(f"{text!r} is not MODULE:NAME. For example: shop.tables:bookings", param_hint=flag)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        value: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise typer.BadParameter(f"there is no module {error.name!r}", param_hint=flag) from None
    for part in name.split("."):
        if not hasattr(value, part):
            raise typer.BadParameter(f"{module!r} has no {name!r}", param_hint=flag)
        value = getattr(value, part)
    return value
