"""What a Job does when one of its pods has ended: the rules of its file, read as Kubernetes' controller reads them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kubernetes.resources import Resource


@dataclass(frozen=True, slots=True)
class Verdict:
    """`replace` starts another pod. Else the Job is Complete or, with the reason of its condition, Failed."""

    replace: bool
    reason: str = ""


COMPLETE = Verdict(False)
REPLACE = Verdict(True)


def verdict(spec: Resource, ended: list[Resource]) -> Verdict:
    """What follows from the pods that have ended, the last of which has ended just now."""
    last = ended[-1]
    if last["status"]["phase"] == "Succeeded":
        return COMPLETE
    if action(spec, last) == "FailJob":
        return Verdict(False, "PodFailurePolicy")
    failures = [pod for pod in ended if pod["status"]["phase"] == "Failed" and action(spec, pod) != "Ignore"]
    if len(failures) > spec.get("backoffLimit", 6):
        return Verdict(False, "BackoffLimitExceeded")
    return REPLACE


def action(spec: Resource, pod: Resource) -> str:
    """That of the first rule of the podFailurePolicy that a failed pod meets; without one, it counts."""
    rules = spec.get("podFailurePolicy", {}).get("rules", [])
    return next((str(rule["action"]) for rule in rules if _meets(rule, pod)), "Count")


def _meets(rule: Resource, pod: Resource) -> bool:
    status = pod["status"]
    if (codes := rule.get("onExitCodes")) is not None:
        ended = [
            each["state"]["terminated"]["exitCode"]
            for each in status.get("containerStatuses", [])
            if codes.get("containerName") in (None, each["name"]) and "terminated" in each["state"]
        ]
        inside = codes["operator"] == "In"
        return any(code and (code in codes["values"]) == inside for code in ended)
    conditions = {(each["type"], each["status"]) for each in status.get("conditions", [])}
    return any((each["type"], each.get("status", "True")) in conditions for each in rule["onPodConditions"])
