"""Kubernetes' resources as its API server keeps them: created once, changed by versions, watched, removed with their
owners. What is created must be valid in Kubernetes' own schemas, without any field that they do not have.
"""

from __future__ import annotations

import copy
import datetime as dt
import re
import secrets
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import kubernetes_validate

Resource = dict[str, Any]
VERSION = kubernetes_validate.latest_version().rpartition(".")[0]
# What is kept here: the names in paths, each with its API group and its kind.
KINDS = {
    "configmaps": ("", "ConfigMap"),
    "persistentvolumeclaims": ("", "PersistentVolumeClaim"),
    "pods": ("", "Pod"),
    "secrets": ("", "Secret"),
    "serviceaccounts": ("", "ServiceAccount"),
    "services": ("", "Service"),
    "jobs": ("batch", "Job"),
    "networkpolicies": ("networking.k8s.io", "NetworkPolicy"),
    "rolebindings": ("rbac.authorization.k8s.io", "RoleBinding"),
    "roles": ("rbac.authorization.k8s.io", "Role"),
}
_WAIT_S = 120


class Refused(Exception):
    """What the API server answers instead of doing it: an HTTP code, a reason in Kubernetes' words, and why."""

    def __init__(self, code: int, reason: str, why: str) -> None:
        super().__init__(why)
        self.code, self.reason = code, reason


class Key(NamedTuple):
    """Which resource it is; all are in one namespace."""

    plural: str
    name: str


@dataclass(frozen=True, slots=True)
class Event:
    """What a watch is told: ADDED, MODIFIED or DELETED, and the resource after it."""

    type: str
    key: Key
    resource: Resource

    @property
    def version(self) -> int:
        return int(self.resource["metadata"]["resourceVersion"])


class Resources:
    """All resources of one namespace. Safe to use from several threads; every resource that it gives is a copy."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.changed = threading.Condition()
        self._kept: dict[Key, Resource] = {}
        self._events: list[Event] = []

    def create(self, plural: str, given: Resource) -> Resource:
        try:
            kubernetes_validate.validate(given, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            raise Refused(422, "Invalid", str(error.message)) from error
        resource = copy.deepcopy(given)
        metadata = resource.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + secrets.token_hex(3)
        key = Key(plural, metadata["name"])
        with self.changed:
            if key in self._kept:
                raise Refused(409, "AlreadyExists", f"{plural} {key.name} already exists")
            metadata |= {"uid": str(uuid.uuid4()), "namespace": self.namespace, "creationTimestamp": now()}
            if plural == "pods":
                resource.setdefault("status", {"phase": "Pending"})
            return self._happened("ADDED", key, resource)

    def get(self, plural: str, name: str) -> Resource:
        with self.changed:
            return copy.deepcopy(self._find(Key(plural, name)))

    def has(self, plural: str, name: str) -> bool:
        with self.changed:
            return Key(plural, name) in self._kept

    def listed(self, plural: str, labels: str = "", fields: str = "") -> list[Resource]:
        with self.changed:
            found = [each for key, each in self._kept.items() if key.plural == plural]
            return copy.deepcopy([each for each in found if selected(each, labels, fields)])

    @property
    def version(self) -> int:
        with self.changed:
            return len(self._events)

    def change(self, plural: str, name: str, how: Callable[[Resource], None]) -> Resource:
        """Let `how` change the resource, unless it has gone, which is Refused."""
        with self.changed:
            resource = copy.deepcopy(self._find(Key(plural, name)))
            how(resource)
            return self._happened("MODIFIED", Key(plural, name), resource)

    def delete(self, plural: str, name: str, grace_s: int | None = None) -> Resource:
        """Remove it. A pod gets a deadline instead; who runs it removes it when its processes have ended."""
        if plural != "pods":
            return self.remove(plural, name)

        def mark(pod: Resource) -> None:
            grace = pod["spec"].get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
            pod["metadata"].setdefault("deletionTimestamp", now())
            pod["metadata"]["deletionGracePeriodSeconds"] = grace

        return self.change(plural, name, mark)

    def remove(self, plural: str, name: str) -> Resource:
        """Remove it, and then what it owns."""
        with self.changed:
            gone = self._find(Key(plural, name))
            del self._kept[Key(plural, name)]
            told = self._happened("DELETED", Key(plural, name), gone, keep=False)
            uid = gone["metadata"]["uid"]
            owned = [key for key, each in self._kept.items() if uid in owners(each)]
        for key in owned:
            self.delete(*key)
        return told

    def events(self, plural: str, after: int, wait_s: float) -> tuple[list[Event], int]:
        """Those of a kind after this version, and up to which version; waits for any for at most so many seconds."""
        with self.changed:
            self.changed.wait_for(lambda: len(self._events) > after, wait_s)
            return [event for event in self._events[after:] if event.key.plural == plural], len(self._events)

    def wait_until(self, condition: Callable[[], bool], what: str, wait_s: float = _WAIT_S) -> None:
        """Return when the condition holds, which is looked at after each change. Fails with `what` else."""
        with self.changed:
            assert self.changed.wait_for(condition, wait_s), f"not after {wait_s:g} s: {what}"

    def _find(self, key: Key) -> Resource:
        if key not in self._kept:
            raise Refused(404, "NotFound", f"{key.plural} {key.name} not found")
        return self._kept[key]

    def _happened(self, kind: str, key: Key, resource: Resource, *, keep: bool = True) -> Resource:
        resource["metadata"]["resourceVersion"] = str(len(self._events) + 1)
        if keep:
            self._kept[key] = resource
        self._events.append(Event(kind, key, copy.deepcopy(resource)))
        self.changed.notify_all()
        return copy.deepcopy(resource)


def selected(resource: Resource, labels: str, fields: str) -> bool:
    """Whether a resource has these labels and fields, given as selectors of Kubernetes."""
    own = resource["metadata"].get("labels", {})
    return all(_has_label(own, each) for each in _requirements(labels)) and all(
        _field(resource, name) == value for name, value in (each.split("=") for each in _requirements(fields))
    )


def _requirements(selector: str) -> Iterator[str]:
    return (found[0].strip() for found in re.finditer(r"[^,(]+(?:\([^)]*\))?", selector))


def _has_label(labels: dict[str, str], requirement: str) -> bool:
    if found := re.fullmatch(r"(\S+) (in|notin) \((.*)\)", requirement):
        values = {value.strip() for value in found[3].split(",")}
        return (labels.get(found[1]) in values) == (found[2] == "in")
    if found := re.fullmatch(r"([^=!\s]+)\s*(==?|!=)\s*(\S*)", requirement):
        return (labels.get(found[1]) == found[3]) == (found[2] != "!=")
    if found := re.fullmatch(r"(!?)([^=!\s]+)", requirement):
        return (found[2] in labels) != bool(found[1])
    raise Refused(400, "BadRequest", f"the selector {requirement!r} is not known here")


def _field(resource: Resource, path: str) -> object:
    found: Any = resource
    for name in path.split("."):
        found = found.get(name, {})
    return found


def owners(resource: Resource) -> list[str]:
    """Their uids."""
    return [owner["uid"] for owner in resource["metadata"].get("ownerReferences", [])]


def now() -> str:
    return f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
