"""The rules of the protocol proxy: which request is subjected to which fault. Pure.

    API[@CLIENT][:COUNT]:ACTION        EndTxn:1:drop-response    Produce@driver-*:2-4:error=NOT_LEADER_OR_FOLLOWER

API is Kafka's name of a request, or `*`. CLIENT is a pattern for its client.id (with `*` and `?`). COUNT selects the
third such request (`3`), the second to the fourth (`2-4`), all from the second on (`2-`), or all (`*`); default: the
first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from kafka.protocol.api_key import ApiKey

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.error_codes import name_of

_CODES = {name_of(code): code for code in range(-1, 134)}
_RULE = re.compile(
    r"(?P<api>\w+|\*)(@(?P<client>[^:]+))?"
    r"(:(?P<count>\*|(?P<first>[1-9]\d*)(?P<to>-(?P<last>[1-9]\d*)?)?))?"
    r":(?P<action>[a-z-]+)(=(?P<value>.+))?"
)


class Action(StrEnum):
    """What happens to a request. A drop also drops everything that follows on the connection in that direction, as in
    a broken network: the connection stays open, and nothing arrives."""

    DROP_REQUEST = "drop-request"  # does not reach the broker
    DROP_RESPONSE = "drop-response"  # is applied; the response does not reach the client
    CUT_REQUEST = "cut-request"  # does not reach the broker; the connection is closed
    CUT_RESPONSE = "cut-response"  # is applied; the connection is closed instead of a response
    DELAY = "delay"  # =SECONDS; is forwarded afterwards, even if the client has closed its connection
    HOLD = "hold"  # is forwarded when it is released
    DUPLICATE = "duplicate"  # is applied, then sent again on a second connection, and only then answered
    ERROR = "error"  # =CODE, a number or a name; does not reach the broker
    ERROR_AFTER = "error-after"  # =CODE; is applied nevertheless


WITH_CODE = (Action.ERROR, Action.ERROR_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Applies `action` to requests number `first` to `last` (None: no end) of one API and client.

    The count starts at 1 when the rule is added to the proxy. `code` is what the two error actions return, `seconds`
    the length of a delay.
    """

    action: Action
    api: str = "*"
    client: str = "*"
    first: int = 1
    last: int | None = 1
    code: int = 0
    seconds: float = 0.0

    def covers(self, api: str, client: str) -> bool:
        """Whether the rule counts a request of this API and client.id."""
        return self.api in ("*", api) and fnmatchcase(client, self.client)

    def due(self, number: int) -> bool:
        """Whether the action applies to the `number`-th counted request."""
        return self.first <= number and (self.last is None or number <= self.last)

    def __str__(self) -> str:
        client = "" if self.client == "*" else f"@{self.client}"
        last = {self.first: "", None: "-"}.get(self.last, f"-{self.last}")
        count = "*" if (self.first, self.last) == (1, None) else f"{self.first}{last}"
        value = f"={self.seconds:g}" if self.action is Action.DELAY else ""
        value = f"={name_of(self.code)}" if self.action in WITH_CODE else value
        return f"{self.api}{client}:{count}:{self.action}{value}"


def parse_rule(text: str) -> Rule:
    """The rule in `text`. Raises ToolFailed, with the reason, if it is not a rule."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ToolFailed(
            f"{text!r} is not a rule", action="Use API[@CLIENT][:COUNT]:ACTION, for example EndTxn:1:drop-response."
        )
    api, action = match["api"], match["action"]
    if api != "*" and api not in ApiKey.__members__:
        raise ToolFailed(f"{text!r}: unknown API {api!r}", action="Use Kafka's name, for example EndTxn or Produce.")
    if action not in list(Action):
        raise ToolFailed(f"{text!r}: unknown action {action!r}", action=f"Use one of {', '.join(Action)}.")
    first, last = _window(match)
    if last is not None and last < first:
        raise ToolFailed(f"{text!r}: the range {first} to {last} is empty")
    return Rule(
        action=Action(action),
        api=api,
        client=match["client"] or "*",
        first=first,
        last=last,
        **_value(text, Action(action), match["value"]),
    )


def _window(match: re.Match[str]) -> tuple[int, int | None]:
    if match["count"] == "*":
        return 1, None
    first = int(match["first"] or 1)
    if match["to"] is None:
        return first, first
    return first, int(match["last"]) if match["last"] else None


def _value(text: str, action: Action, value: str | None) -> dict[str, Any]:
    if action is Action.DELAY and value is not None and re.fullmatch(r"\d+(\.\d+)?", value):
        return {"seconds": float(value)}
    if action in WITH_CODE and value in _CODES:
        return {"code": _CODES[value]}
    if action in WITH_CODE and value is not None and re.fullmatch(r"-?\d+", value):
        return {"code": int(value)}
    syntax = {Action.DELAY: "=SECONDS", **dict.fromkeys(WITH_CODE, "=CODE, a number or Kafka's name of an error")}
    if action in syntax:
        raise ToolFailed(f"{text!r}: {action} requires {syntax[action]}")
    if value is not None:
        raise ToolFailed(f"{text!r}: {action} does not have a value")
    return {}
