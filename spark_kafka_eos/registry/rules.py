"""Rules of a schema (data contracts): Confluent's clients run them, this package runs none, so it refuses a schema that
has some for what it is about to do.

A client that has no executor for a rule's type fails, too, unless the rule says what else to do. Disabled rules, and
those that are enabled elsewhere than in clients, are none.

Source: Confluent Schema Registry, "Data contracts"; `BaseSerde._execute_rules` of confluent-kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import RuleSet

# Modes of rules. Those of migrations concern a record whose version is not the reader's.
WRITING = frozenset({"WRITE", "WRITEREAD"})
READING = frozenset({"READ", "WRITEREAD", "UPGRADE", "DOWNGRADE", "UPDOWN"})
_OF_CLIENTS = {None, "ALL", "CLIENT"}


class SchemaRule(NamedTuple):
    name: str
    type: str
    mode: str


def rules_of(rule_set: RuleSet | None) -> tuple[SchemaRule, ...]:
    """The rules that clients run."""
    if rule_set is None or rule_set.enable_at not in _OF_CLIENTS:
        return ()
    phases = (rule_set.migration_rules, rule_set.domain_rules, rule_set.encoding_rules)
    rules = [rule for phase in phases for rule in phase or () if not rule.disabled]
    return tuple(SchemaRule(rule.name or "", rule.type or "", str(rule.mode or "")) for rule in rules)


def rule_names(rules: Sequence[SchemaRule], modes: frozenset[str]) -> str:
    """The names and types of those with one of `modes`, as an error has them; "" for none."""
    return ", ".join(f"{rule.name!r} ({rule.type})" for rule in rules if rule.mode in modes)
