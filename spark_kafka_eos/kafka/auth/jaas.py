"""Parses `sasl.jaas.config`, Java's login configuration: a login module and its options.

Kafka reads it with java.io.StreamTokenizer, whose rules are these, in order of precedence: white space separates; a
number, which begins with a digit, a dot or a minus, has no text; a word has letters, digits and `.-_$`; a text is in
single or double quotes, with escapes of C, and ends with its line at the latest; a slash begins a comment, as `//`,
`/* */`, or alone; anything else is a sign of its own.

Source: Kafka's JaasConfig, and Java's documentation of StreamTokenizer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from spark_kafka_eos.kafka.auth.secret import Secret

_LETTER = r"A-Za-z_$\-\xa0-\U0010ffff"
# A text may end without its quote, with the line; `\` and a line feed do not end it.
_TEXT = r"(?:\\.|[^{quote}\\\r\n])*+(?:{quote}|\\\Z|(?=[\r\n])|\Z)"
_TOKEN = re.compile(
    rf"""[\x00-\x20]+
    |/\*(?:.*?\*/|.*)|/[^*]?[^\r\n]*
    |(?P<number>(?:-(?=[0-9.])|(?=[0-9.]))[0-9]*(?:\.[0-9]*)?)
    |(?P<minus>-)
    |(?P<word>[{_LETTER}][{_LETTER}0-9.]*)
    |(?P<double>"{_TEXT.format(quote='"')})
    |(?P<single>'{_TEXT.format(quote="'")})
    |(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")


class Login(NamedTuple):
    """A login module's name, without its package, and the module's options."""

    module: str
    options: Mapping[str, Secret]


class _JaasToken(NamedTuple):
    text: str | None  # of a word or a quoted text
    sign: str = ""


def login(jaas: Secret) -> Login:
    """The single entry of a `sasl.jaas.config`. Raises ValueError, without quoting it, if it is malformed."""
    tokens = _tokens(jaas.reveal())
    module, flag = next(tokens, _JaasToken(None)).text, next(tokens, _JaasToken(None)).text
    if not module or flag is None or flag.upper() not in _FLAGS:
        raise ValueError('expected `<login module> required username="…" password="…";`')
    options: dict[str, Secret] = {}
    for token in tokens:
        if token.sign == ";":
            break
        if next(tokens, _JaasToken(None)).sign != "=" or (value := next(tokens, _JaasToken(None)).text) is None:
            raise ValueError(
                "an option is not `name=value`, or the text before it ends early: put quotes around a value that has "
                "other characters than letters, digits and `.-_$`, or that begins with a digit"
            )
        if token.text is not None:
            options[token.text] = Secret(value)
    else:
        raise ValueError("expected `;` after the last option")
    if next(tokens, None) is not None:
        raise ValueError("expected `;` after the last option, and nothing behind it")
    return Login(module.rpartition(".")[2], options)


def _tokens(text: str) -> Iterator[_JaasToken]:
    for match in _TOKEN.finditer(text):
        match match.lastgroup:
            case "word":
                yield _JaasToken(match[0])
            case "double" | "single":
                yield _JaasToken(_unescaped(match[0]))
            case "number":
                yield _JaasToken(None)
            case "minus" | "sign":
                yield _JaasToken(None, match[0])


def _unescaped(quoted: str) -> str:
    """The text without its quotes, of which the closing one may be missing."""
    ends = re.fullmatch(rf"{quoted[0]}((?:\\.|[^\\])*?){quoted[0]}", quoted, re.DOTALL)

    def character(escape: re.Match[str]) -> str:
        code = escape[1]
        return chr(int(code, 8)) if "0" <= code[0] <= "7" else _NAMED.get(code, code)

    return _ESCAPE.sub(character, ends[1] if ends else quoted[1:])
