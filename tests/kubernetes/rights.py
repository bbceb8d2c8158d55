"""What a service account may do: the rules of the Roles that RoleBindings give it (RBAC)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.kubernetes.resources import Resource


@dataclass(frozen=True, slots=True)
class Action:
    """What a request asks for: a verb of Kubernetes, the resources' API group, and their name in paths."""

    verb: str
    group: str
    resource: str


def rules_of(account: str, roles: Iterable[Resource], bindings: Iterable[Resource]) -> list[Resource]:
    """All that the account has."""
    named = {role["metadata"]["name"]: role["rules"] for role in roles}
    given = [
        binding["roleRef"]["name"]
        for binding in bindings
        if any(each["kind"] == "ServiceAccount" and each["name"] == account for each in binding["subjects"])
    ]
    return [rule for name in given for rule in named.get(name, [])]


def allowed(action: Action, rules: Iterable[Resource]) -> bool:
    """Whether one of the rules has group, resource and verb of the action."""
    return any(
        _has(rule["apiGroups"], action.group)
        and _has(rule["resources"], action.resource)
        and _has(rule["verbs"], action.verb)
        for rule in rules
    )


def _has(names: list[str], name: str) -> bool:
    return name in names or "*" in names
