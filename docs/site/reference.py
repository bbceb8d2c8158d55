"""MkDocs hook: on the site, each part of the page on the API ends with the signatures and docstrings of its names.

mkdocstrings renders them. On GitHub, the page has only its tables.
"""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(r"^## (?P<module>\w[\w.]*)\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^\| `(?P<name>[A-Za-z]\w*)", re.MULTILINE)
_ERRORS = re.compile(r"^The \[errors\].*?\.$", re.MULTILINE | re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Add the directives to the page on the API."""
    return with_reference(markdown) if page.file.src_uri == "api.md" else markdown


def with_reference(markdown: str) -> str:
    """The page with a directive of mkdocstrings for each name in its tables, and for each error."""
    return _PART.sub(_extended, markdown)


def _extended(part: re.Match[str]) -> str:
    body = part["body"]
    names = _NAME.findall(body)
    for errors in _ERRORS.findall(body):
        names += re.findall(r"`(\w+)`", errors)
    directives = "".join(f"::: {part['module']}.{name}\n" for name in names)
    return f"## {part['module']}\n{body.rstrip()}\n\n{directives}\n"
