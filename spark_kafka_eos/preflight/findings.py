"""The result of a check: what was found, what it means for the data, what to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The query starts unless there is an error."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check: what was found, what it means for the data, what to do. Without full stops."""

    severity: Severity
    subject: str
    found: str
    meaning: str = ""
    action: str = ""

    def __str__(self) -> str:
        return ". ".join(part for part in (f"{self.subject}: {self.found}", self.meaning, self.action) if part)
