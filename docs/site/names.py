"""MkDocs hook: names in code may be cut at their joints on a narrow screen, and nowhere else (see site.css)."""

from __future__ import annotations

import re

_PRE = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)
_CODE = re.compile(r"(<code\b[^>]*>)(.*?)(</code>)", re.DOTALL)
_TAG = re.compile(r"(<[^>]*>|&[#\w]+;)")
_JOINT = re.compile(r"(?<=\w)([_.,:=/-]+)(?=\w)")


def on_post_page(output: str, **_: object) -> str:
    """The page with `<wbr>` after each joint of a name; blocks of code scroll and stay as they are. The search index is
    made before.
    """
    parts = _PRE.split(output)
    return "".join(part if part.startswith("<pre") else _CODE.sub(_joined, part) for part in parts)


def _joined(code: re.Match[str]) -> str:
    parts = _TAG.split(code[2])
    return code[1] + "".join(part if _TAG.fullmatch(part) else _JOINT.sub(r"\1<wbr>", part) for part in parts) + code[3]
