"""Translates a regular expression from Java's syntax (`java.util.regex.Pattern`, Java 17) to Python's.

The translation is found in the same topic names, and matches the same whole names. A name consists of ASCII letters,
digits, `.`, `_` and `-`. So a character class is translated to the characters of names that are in it: Java's unions,
intersections and properties need no counterpart, and Unicode and line terminators make no difference.

A construct without an exact counterpart is refused by name: it must not match other topics than in Java.
"""

from __future__ import annotations

import re
import string
import unicodedata

_NAME = frozenset(string.ascii_letters + string.digits + "._-")
_NEVER = r"\x00"  # no name contains it

_CLASSES = {
    "d": frozenset(string.digits),
    "w": _NAME - {".", "-"},
    **dict.fromkeys("shv", frozenset[str]()),  # no name contains white space
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_BOUNDARIES = {"b": r"\b", "B": r"\B", "A": r"\A", "z": r"\Z", "Z": r"\Z"}

_LOWER, _UPPER = frozenset(string.ascii_lowercase), frozenset(string.ascii_uppercase)
_POSIX = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": _NAME,
    "Alpha": _LOWER | _UPPER,
    "Digit": _CLASSES["d"],
    "Alnum": _LOWER | _UPPER | _CLASSES["d"],
    "Punct": frozenset("._-"),
    "Graph": _NAME,
    "Print": _NAME,
    "XDigit": frozenset(string.hexdigits),
    **dict.fromkeys(("Blank", "Cntrl", "Space"), frozenset[str]()),
}
_CATEGORIES = ("L", "Lu", "Ll", "N", "Nd", "P", "Pc", "Pd", "Po", "S", "Z", "M", "C")
_PROPERTIES = (
    _POSIX
    | {
        f"{prefix}{name}": frozenset(ch for ch in _NAME if unicodedata.category(ch).startswith(name))
        for name in _CATEGORIES
        for prefix in ("", "Is")
    }
    | {
        "IsAlphabetic": _POSIX["Alpha"],
        "IsLetter": _POSIX["Alpha"],
        "IsDigit": _POSIX["Digit"],
        "IsLatin": _POSIX["Alpha"],
    }
    | {"IsLowercase": _LOWER, "IsUppercase": _UPPER, "IsPunctuation": _POSIX["Punct"], "javaLetter": _POSIX["Alpha"]}
    | {"javaLowerCase": _LOWER, "javaUpperCase": _UPPER, "javaLetterOrDigit": _POSIX["Alnum"]}
)

_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\.", re.DOTALL)
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?", re.ASCII)
_FLAGS = re.compile(r"\(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]*))?(?P<end>[:)])")
_GROUP = re.compile(r"\(\?(?:<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<kind>[=!>]|<[=!]))")
_CODE = re.compile(
    r"0(?P<octal>[0-3]?[0-7]{1,2})|(?:x(?P<two>H{2})|u(?P<four>H{4})|x\{(?P<any>H+)\})".replace("H", "[0-9a-fA-F]")
)

# Java parses `a&&[b]c&&d` from the right, and a single & after && in yet another way.
_AND = "contains && with an operand that is empty, contains & or mixes a class with characters, which is not supported"


def to_python(pattern: str) -> str:
    """The pattern for `re.search` and `re.fullmatch`. Raises ValueError, which names the construct that cannot be
    translated.
    """
    translated = _Translation(_QUOTED.sub(_unquoted, pattern)).whole()
    try:
        re.compile(translated)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is not valid, or not supported by Python: {getattr(error, 'msg', error)}") from None
    return translated


def _unquoted(match: re.Match[str]) -> str:
    r"""The content of `\Q…\E` with an escape before each character; the escape of a letter would mean something."""
    if match[1] is None:
        return match[0]
    return "".join(ch if ch.isascii() and ch.isalpha() else rf"\x{{{ord(ch):x}}}" for ch in match[1])


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._pattern, self._at = pattern, 0
        self._ignore_case = False

    def whole(self) -> str:
        translated = self._alternatives()
        if self._at < len(self._pattern):
            raise ValueError("is not valid: unmatched )")
        return translated

    def _alternatives(self) -> str:
        """Up to the end of the group. A flag such as `(?i)` holds to there, in the alternatives that follow, too."""
        parts, outside, scopes = [], self._ignore_case, 0
        while (ch := self._peek()) not in ("", ")"):
            if ch == "|":
                self._at += 1
                parts += [")" * scopes, "|"]
                scopes = 0
                if self._ignore_case is not outside:
                    parts.append(self._scope())
                    scopes = 1
            elif (flags := _FLAGS.match(self._pattern, self._at)) and flags["end"] == ")":
                self._at = flags.end()
                self._set(flags)
                parts.append(self._scope())
                scopes += 1
            else:
                parts += [self._atom(), self._quantifier()]
        self._ignore_case = outside
        return "".join(parts) + ")" * scopes

    def _scope(self) -> str:
        return "(?ai:" if self._ignore_case else "(?-i:"

    def _set(self, flags: re.Match[str]) -> None:
        on, off = flags["on"], flags["off"] or ""
        for flag in on + off:
            if flag not in "idms":  # the latter three make no difference to names
                raise ValueError(f"uses the flag (?{flag}), which is not supported")
        if "i" in on + off:
            self._ignore_case = "i" not in off

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self, literal: str) -> bool:
        taken = self._pattern.startswith(literal, self._at)
        self._at += len(literal) * taken
        return taken

    # -- outside a character class

    def _atom(self) -> str:
        ch = self._peek()
        match ch:
            case "(":
                return self._group()
            case "[":
                return _one_of(self._class())
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise ValueError(f"is not valid: nothing to repeat before {ch}")
            case "{":
                raise ValueError("is not valid: { without a number of repetitions; a literal brace is \\{")
            case _:
                self._at += 1
                return ch if ch in ".^$" else _literal(ch)

    def _quantifier(self) -> str:
        match = _QUANTIFIER.match(self._pattern, self._at)
        self._at += len(match[0]) if match else 0
        return match[0] if match else ""

    def _group(self) -> str:
        outside = self._ignore_case
        if flags := _FLAGS.match(self._pattern, self._at):
            self._at = flags.end()
            self._set(flags)
            opening = self._scope() if self._ignore_case is not outside else "(?:"
        elif match := _GROUP.match(self._pattern, self._at):
            self._at = match.end()
            opening = match[0]
            if name := match["name"]:
                opening = f"(?P<{name}>"
        elif self._pattern.startswith("(?", self._at):
            raise ValueError(f"contains {self._pattern[self._at : self._at + 3]}, which is not Java's syntax")
        else:
            self._at += 1
            opening = "("
        inside = self._alternatives()
        if not self._take(")"):
            raise ValueError("is not valid: ( without )")
        self._ignore_case = outside
        return f"{opening}{inside})"

    def _escape(self) -> str:
        name = self._pattern[self._at + 1 : self._at + 2]
        if name and name in _BOUNDARIES:
            self._at += 2
            return _BOUNDARIES[name]
        if name == "R":  # a line break
            self._at += 2
            return _NEVER
        if name and name in "123456789k":
            # When a failed alternative's groups are forgotten differs between Java and Python.
            raise ValueError(f"contains the back-reference \\{name}, which is not supported")
        among = self._escaped_class()
        return _literal(self._character()) if among is None else _one_of(among)

    # -- characters

    def _class(self) -> frozenset[str]:
        """The characters of names in a class; `a&&b` is an intersection, a class inside a class a union."""
        start = self._at
        self._at += 1
        is_negated = self._take("^")
        operands: list[frozenset[str]] = []
        characters: frozenset[str] | None = None
        has_class = is_mixed = has_ampersand = False
        while (ch := self._peek()) != "]" or (characters is None and not operands):
            if not ch:
                raise ValueError(f"is not valid: {self._pattern[start:]} without ]")
            if self._take("&&"):
                if characters is None or (operands and is_mixed):
                    raise ValueError(_AND)
                operands.append(characters)
                characters, has_class, is_mixed = None, False, False
                continue
            if ch == "[":
                among, has_class = self._class(), True
            else:
                among, is_mixed, has_ampersand = self._item(), is_mixed or has_class, has_ampersand or ch == "&"
            characters = among if characters is None else characters | among
        self._at += 1
        if characters is None or (operands and has_ampersand):
            raise ValueError(_AND)
        among = characters.intersection(*operands)
        return _NAME - among if is_negated else among

    def _item(self) -> frozenset[str]:
        """A character, a range, or an escape such as `\\d`."""
        if (among := self._escaped_class()) is not None:
            return among
        first = last = self._character()
        if self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "[", "]"):
            self._at += 1
            last = self._character()
            if last < first:
                raise ValueError(f"is not valid: the range {first}-{last} is empty")
        cased = (lambda ch: (ch.lower(), ch.upper())) if self._ignore_case else (lambda ch: (ch,))
        return frozenset(ch for ch in _NAME if any(first <= variant <= last for variant in cased(ch)))

    def _escaped_class(self) -> frozenset[str] | None:
        """`\\d`, `\\P{Alpha}` and the like; None, without moving, if something else comes."""
        if self._peek() != "\\" or not (name := self._pattern[self._at + 1 : self._at + 2]):
            return None
        if name.lower() in _CLASSES and name.isascii():
            self._at += 2
            among = _CLASSES[name.lower()]
        elif name in "pP":
            among = self._property()
        else:
            return None
        return _NAME - among if name.isupper() else among

    def _property(self) -> frozenset[str]:
        match = re.compile(r"\\[pP](?:\{([^}]*)\}|(.))").match(self._pattern, self._at)
        name = (match[1] or match[2]) if match else ""
        if match is None or name not in _PROPERTIES:
            construct = match[0] if match else self._pattern[self._at :]
            raise ValueError(f"contains {construct}, a property that is not supported")
        among = _PROPERTIES[name]
        if self._ignore_case and len(among & _LOWER) != len(among & _UPPER):
            raise ValueError(f"contains {match[0]} with the flag (?i), which depends on the release of Java")
        self._at = match.end()
        return among

    def _character(self) -> str:
        """One character, written as it is or as an escape."""
        ch = self._peek()
        self._at += 1
        if ch != "\\":
            return ch
        name = self._peek()
        if code := _CODE.match(self._pattern, self._at):
            self._at = code.end()
            number = int(code["octal"], 8) if code["octal"] else int(code["two"] or code["four"] or code["any"], 16)
            if number > 0x10FFFF:
                raise ValueError(f"is not valid: \\{code[0]} is not a character")
            return chr(number)
        self._at += 1
        if name and name in _CONTROLS:
            return _CONTROLS[name]
        if name == "c" and self._peek():
            self._at += 1
            return chr(ord(self._pattern[self._at - 1]) ^ 64)
        if not name or (name.isascii() and name.isalnum()):
            raise ValueError(f"contains \\{name}, which is not supported")
        return name


def _one_of(characters: frozenset[str]) -> str:
    return f"[{''.join(_literal(ch) for ch in sorted(characters))}]".replace("-", r"\-") if characters else _NEVER


def _literal(ch: str) -> str:
    return ch if ch in _NAME - {"."} else re.escape(ch)
