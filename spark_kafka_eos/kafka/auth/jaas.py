"""Parses `sasl.jaas.config`, Java's login configuration: a login module and its options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from spark_kafka_eos.kafka.auth.secret import Secret

_MODULE = re.compile(
    r"\s*[\w.$]*\.(?P<module>\w+)\s+(?i:required|requisite|sufficient|optional)\b(?P<rest>.*)", re.DOTALL
)
# Kafka's parser takes both quotes.
_OPTION = re.compile(
    r"""(?P<key>[\w.]+)\s*=\s*
    (?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)'|(?P<bare>[^\s;"'][^\s;"]*))\s*""",
    re.DOTALL | re.VERBOSE,
)


class Login(NamedTuple):
    """A login module's name, without its package, and the module's options."""

    module: str
    options: Mapping[str, Secret]


def login(jaas: Secret) -> Login:
    """The single entry of a `sasl.jaas.config`. Raises ValueError, without quoting it, if it is malformed."""
    match = _MODULE.fullmatch(jaas.reveal())
    if match is None:
        raise ValueError('expected `<login module> required username="…" password="…";`')
    rest = match["rest"].strip()
    options: dict[str, Secret] = {}
    while option := _OPTION.match(rest):
        bare = option["bare"]
        quoted = option["double"] or option["single"] or ""
        options[option["key"]] = Secret(re.sub(r"\\(.)", r"\1", quoted) if bare is None else bare)
        rest = rest[option.end() :]
    if rest.strip() != ";":
        raise ValueError("expected `;` after the last option")
    return Login(match["module"], options)
