"""MkDocs hook: the pages at the repository's root join the site, and links that are right on GitHub are right there.

A link to a file of the repository that the site does not hold becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "PERFORMANCE.md": "performance.md",
    "README.md": "index.md",
}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^][]*(?:\[[^][]*\][^][]*)*)\]\((?P<target>(?!https?:|#)[^)\s]+)\)")
_CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_ASIDE = "\0"
_LEFT_OUT = (".json", ".py")  # `exclude_docs` of mkdocs.yml


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    for name, page in ROOT_PAGES.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Rewrite the links of a page, but for its code."""
    of_root = {site: name for name, site in ROOT_PAGES.items() if name != "README.md"}
    folder = "" if page.file.src_uri in of_root else "docs"
    # Code is put aside while links are rewritten: it is no link itself, and a link's text may hold some.
    aside = _CODE.findall(markdown)
    plain = _CODE.sub(_ASIDE, markdown)
    rewritten = _LINK.sub(lambda link: _rewrite(link, folder), plain)
    code = iter(aside)
    return re.sub(_ASIDE, lambda _: next(code), rewritten)


def _rewrite(link: re.Match[str], folder: str) -> str:
    path, hash_, anchor = link["target"].partition("#")
    inside = posixpath.normpath(posixpath.join(folder, path))
    if inside in ROOT_PAGES:
        target = ROOT_PAGES[inside]
    elif inside.startswith("docs/") and (ROOT / inside).is_file() and not inside.endswith(_LEFT_OUT):
        target = inside.removeprefix("docs/")
    elif (ROOT / inside).exists():
        return link["text"]
    else:
        target = path  # MkDocs reports it
    return f"{link['image']}[{link['text']}]({target}{hash_}{anchor})"
