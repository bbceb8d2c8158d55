"""The profile *restricted* of Kubernetes' Pod Security Standards."""

from __future__ import annotations

from typing import Any


def violations(pod: dict[str, Any]) -> list[str]:
    """What the profile "restricted" of Kubernetes' Pod Security Standards forbids in the pod."""
    context = pod.get("securityContext", {})
    found = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.get(name)]
    if context.get("seccompProfile", {}).get("type") not in {"RuntimeDefault", "Localhost"}:
        found.append("seccompProfile")
    if not context.get("runAsNonRoot") or context.get("runAsUser") == 0:
        found.append("runAsNonRoot")
    for container in [*pod["containers"], *pod.get("initContainers", [])]:
        own = container.get("securityContext", {})
        if own.get("allowPrivilegeEscalation") is not False:
            found.append("allowPrivilegeEscalation")
        if own.get("privileged") or own.get("runAsUser") == 0 or own.get("runAsNonRoot") is False:
            found.append("privileged")
        if own.get("capabilities", {}).get("drop") != ["ALL"] or own["capabilities"].get("add"):
            found.append("capabilities")
        if any("hostPort" in port for port in container.get("ports", [])):
            found.append("hostPort")
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    return found + [volume["name"] for volume in pod["volumes"] if not volume.keys() <= {"name", *allowed}]
