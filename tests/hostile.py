"""Text that anybody may choose, with every character that could do something to who reads it."""

from __future__ import annotations

import re
import unicodedata

# Control characters (C0, DEL, C1), and what has no width: marks of direction, joiners, separators, the byte order mark.
HIDDEN = [
    character for character in map(chr, range(0x1_0000)) if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
]
# A table's row could be erased, the clipboard written, a link be made by the commands' own markup.
ESCAPES = "\x1b[2K\x1b]52;c;cm0gLXJm\x07\x9b31m[link=file:///etc/passwd][bold red]\u202e"
EVIL = ESCAPES + "".join(each for each in HIDDEN if each not in "\0\n") + "end"
_OF_A_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")  # the commands' own: colours, where the next line goes


def is_harmless(said: str, *, terminal: bool = False) -> bool:
    """Whether a terminal shows this text and does nothing else, but for line breaks and, on a `terminal`, what the
    command does there itself.
    """
    own = _OF_A_TERMINAL.sub("", said) if terminal else said
    return own.replace("\n", "").isprintable()
