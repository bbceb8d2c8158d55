"""Runs the pods of a namespace as processes of this machine (containers.py), and tells the API how they are, as a
kubelet does: volumes, the service account's token, the user and fsGroup, the status, the grace period.

Each pod has one container, an address of its own in 127.0.0.0/8, and the names of services in its /etc/hosts. It is
started once (`restartPolicy: Never`). Limits, probes, priorities and network policies are not kept.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psutil

from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.kubernetes.containers import Container, Mount
from tests.kubernetes.image import Image
from tests.kubernetes.resources import Resource, Resources, now

ENDED = ("Succeeded", "Failed")
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
_LOOK_S = 0.2
_STOP_S = 60
_PIDS = 600  # of a pod, so that hardly two pods have a process of the same number


class Kubelet:
    """As a context manager. `images` are by the names that pods use, `tokens` by the service accounts' names."""

    def __init__(self, resources: Resources, folder: Path, images: dict[str, Image], address: str, ca: Path) -> None:
        self.folder, self.volumes = folder, folder / "volumes"
        self.tokens: dict[str, str] = {}
        self._resources, self._images, self._ca = resources, images, ca
        self._api = ipaddress.ip_address(address)
        self._addresses = iter(range(1, 254))
        self._supervised = SupervisedProcesses()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._begun: set[str] = set()  # the pods whose process is there, or will be
        self._threads: list[threading.Thread] = []
        self._closing = threading.Event()
        self.failed: list[BaseException] = []
        for part in ("logs", "hosts", "volumes"):
            (folder / part).mkdir(parents=True)

    def __enter__(self) -> Self:
        self._start(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for name in list(self._processes):
            self.signal(name, signal.SIGKILL)
        self._supervised.close()
        for thread in self._threads:
            thread.join(_STOP_S)
        assert not self.failed, self.failed

    def log(self, pod: str) -> str:
        """What the pod's container has written."""
        return self._log(pod).read_text(errors="replace") if self._log(pod).exists() else ""

    def signal(self, pod: str, number: signal.Signals) -> None:
        """Send a signal to the first process of the pod's container; SIGKILL ends all of them."""
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            for process in psutil.Process(self._processes[pod].pid).children():
                process.send_signal(number)

    def pod_of(self, pid: int) -> str:
        """The pod that has a process of this number, as its container counts."""
        [found] = (pod for pod in self._processes if pid in map(_number_inside, self._of(pod)))
        return found

    def _of(self, pod: str) -> list[psutil.Process]:
        try:
            return list(psutil.Process(self._processes[pod].pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return []

    def _start(self, how: Callable[..., None], *arguments: object) -> None:
        def run() -> None:
            try:
                how(*arguments)
            except BaseException as error:
                self.failed.append(error)
                raise

        thread = threading.Thread(target=run, name="kubelet")
        self._threads.append(thread)
        thread.start()

    def _follow(self) -> None:
        """Start a thread for each new pod, and one that ends it."""
        after = 0
        ending: set[str] = set()
        while not self._closing.is_set():
            events, after = self._resources.events("pods", after, _LOOK_S)
            for event in events:
                metadata = event.resource["metadata"]
                if event.type == "ADDED":
                    self._start(self._run, event.resource)
                elif event.type == "MODIFIED" and "deletionTimestamp" in metadata and metadata["uid"] not in ending:
                    ending.add(metadata["uid"])
                    self._start(self._end, event.resource)
            self._tell_names()

    def _run(self, pod: Resource) -> None:
        name = pod["metadata"]["name"]
        assert pod["spec"]["restartPolicy"] == "Never", "restarts in a pod are not done here"
        [container] = pod["spec"]["containers"]
        image = self._images[container["image"]]
        if not self._await(lambda: self._is_ending(name) or self._has_volumes(pod["spec"])):
            return
        with self._resources.changed:
            if self._is_ending(name):
                return
            self._begun.add(name)
        pod = self._tell(name, podIP=str(self._api + next(self._addresses)), startTime=now())
        self._tell_names()
        (self.folder / "pods" / name).mkdir(parents=True)
        process = self._supervised.spawn(self._container(pod, container, image).arguments(), log=self._log(name))
        self._processes[name] = process
        running = {"name": container["name"], "ready": True, "restartCount": 0, "image": container["image"]}
        running |= {"imageID": "", "state": {"running": {"startedAt": now()}}}
        ready = [
            {"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]
        self._tell(name, phase="Running", conditions=ready, containerStatuses=[running])
        code = process.wait()
        code = 128 - code if code < 0 else code
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now()}
        told = [running | {"ready": False, "state": {"terminated": ended}}]
        if not self._closing.is_set():
            self._tell(name, phase="Failed" if code else "Succeeded", containerStatuses=told, conditions=[])

    def _end(self, pod: Resource) -> None:
        """SIGTERM, and SIGKILL after the grace period, as the pod says; then the pod is gone."""
        name, grace_s = pod["metadata"]["name"], pod["metadata"]["deletionGracePeriodSeconds"]
        if name in self._begun and self._await(lambda: name in self._processes):
            self.signal(name, signal.SIGTERM)
            if not self._await(lambda: self._has_ended(name), grace_s):
                self.signal(name, signal.SIGKILL)
                self._await(lambda: self._has_ended(name), _STOP_S)
        if self._resources.has("pods", name):
            self._resources.remove("pods", name)

    def _is_ending(self, name: str) -> bool:
        """Whether the pod is gone, or is to be."""
        if not self._resources.has("pods", name):
            return True
        return "deletionTimestamp" in self._resources.get("pods", name)["metadata"]

    def _has_ended(self, name: str) -> bool:
        return self._resources.get("pods", name)["status"]["phase"] in ENDED

    def _await(self, condition: Callable[[], bool], wait_s: float = float("inf")) -> bool:
        """Whether the condition came to hold before the time was over or everything ends."""
        left = wait_s
        while left > 0 and not self._closing.is_set():
            with self._resources.changed:
                if self._resources.changed.wait_for(condition, _LOOK_S):
                    return True
            left -= _LOOK_S
        return False

    def _tell(self, name: str, **status: object) -> Resource:
        def change(pod: Resource) -> None:
            kept = [each for each in pod["status"].get("conditions", []) if each["type"] == "DisruptionTarget"]
            pod["status"] |= status
            if "conditions" in status:
                pod["status"]["conditions"] += kept

        return self._resources.change("pods", name, change)

    def _log(self, pod: str) -> Path:
        return self.folder / "logs" / pod

    def _container(self, pod: Resource, container: Resource, image: Image) -> Container:
        name, spec = pod["metadata"]["name"], pod["spec"]
        context = spec.get("securityContext", {}) | container.get("securityContext", {})
        user = int(context.get("runAsUser", image.user))
        assert user or not context.get("runAsNonRoot"), "the pod demands a user that is not root"
        group = context.get("fsGroup")
        environment = image.environment | self._environment(pod, container)
        command = container.get("command") or image.entrypoint
        words = [*command, *container.get("args", [])]
        return Container(
            root=image.root,
            command=[expanded(word, environment) for word in words],
            environment=environment,
            folder=container.get("workingDir", image.folder),
            user=user,
            group=int(context.get("runAsGroup", 0)),
            groups=[] if group is None else [group],
            mounts=list(self._mounts(pod, container, group)),
            scratch=self.folder / "pods" / name / "scratch",
            read_only=bool(context.get("readOnlyRootFilesystem")),
            restricted=context.get("capabilities", {}).get("drop") == ["ALL"]
            and context.get("allowPrivilegeEscalation") is False,
            hostname=name,
            first_pid=_PIDS * len(self._processes) + _PIDS,
        )

    def _environment(self, pod: Resource, container: Resource) -> dict[str, str]:
        found = {"KUBERNETES_SERVICE_HOST": str(self._api), "KUBERNETES_SERVICE_PORT": "443", "HOME": "/"}
        for each in container.get("env", []):
            if "valueFrom" not in each:
                found[each["name"]] = expanded(each.get("value", ""), found)
            elif "fieldRef" in each["valueFrom"]:
                found[each["name"]] = field(pod, each["valueFrom"]["fieldRef"]["fieldPath"])
            else:
                raise ValueError(f"a value from {each['valueFrom']} is not known here")
        return found

    def _mounts(self, pod: Resource, container: Resource, group: int | None) -> Iterator[Mount]:
        volumes = {volume["name"]: self._volume(pod, volume, group) for volume in pod["spec"].get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            source, read_only = volumes[mount["name"]]
            source = source / mount.get("subPath", "")
            yield Mount(source=source, target=mount["mountPath"], read_only=read_only or bool(mount.get("readOnly")))
        yield Mount(source=self._hosts(pod["metadata"]["name"]), target="/etc/hosts", read_only=True)
        if pod["spec"].get("automountServiceAccountToken", True):
            account = pod["spec"].get("serviceAccountName", "default")
            folder = self.folder / "pods" / pod["metadata"]["name"] / "token"
            content = {
                "token": self.tokens[account],
                "namespace": self._resources.namespace,
                "ca.crt": self._ca.read_text(),
            }
            yield Mount(source=_written(folder, content), target=_TOKEN, read_only=True)

    def _volume(self, pod: Resource, volume: Resource, group: int | None) -> tuple[Path, bool]:
        """Its folder, and whether it can only be read. The pod's fsGroup owns it."""
        own = self.folder / "pods" / pod["metadata"]["name"] / "volumes" / volume["name"]
        match volume:
            case {"emptyDir": _}:
                own.mkdir(parents=True)
                own.chmod(0o777)
            case {"persistentVolumeClaim": claim}:
                own = self.claimed(claim["claimName"])
            case {"secret": secret}:
                _written(own, self._resources.get("secrets", secret["secretName"])["stringData"])
            case {"configMap": named}:
                content = self._resources.get("configmaps", named["name"])["data"]
                wanted = {each["key"]: each["path"] for each in named.get("items", [])} or {key: key for key in content}
                _written(own, {path: content[key] for key, path in wanted.items()})
            case _:
                raise ValueError(f"the volume {volume} is not known here")
        if group is not None:
            own_by(own, group)
        return own, "secret" in volume or "configMap" in volume

    def claimed(self, claim: str) -> Path:
        """The folder of a claim, which all pods share."""
        folder = self.volumes / claim
        folder.mkdir(exist_ok=True)
        return folder

    def _has_volumes(self, spec: Resource) -> bool:
        """Whether all is there that the pod waits for: another one may still be creating it."""
        needed = [("serviceaccounts", spec.get("serviceAccountName", "default"))]
        for volume in spec.get("volumes", []):
            match volume:
                case {"persistentVolumeClaim": claim}:
                    needed.append(("persistentvolumeclaims", claim["claimName"]))
                case {"secret": secret}:
                    needed.append(("secrets", secret["secretName"]))
                case {"configMap": named}:
                    needed.append(("configmaps", named["name"]))
        return all(self._resources.has(*each) for each in needed)

    def _hosts(self, pod: str) -> Path:
        return self.folder / "hosts" / pod

    def _tell_names(self) -> None:
        """Write each running pod's own name, and those of the services, into its /etc/hosts."""
        with self._resources.changed:
            pods = {pod["metadata"]["name"]: pod for pod in self._resources.listed("pods") if "podIP" in pod["status"]}
            shared = f"127.0.0.1 localhost\n{self._api} kubernetes.default.svc\n"
            for service in self._resources.listed("services"):
                of = f"{service['metadata']['name']}.{self._resources.namespace}.svc"
                labels = service["spec"].get("selector", {}).items()
                for pod in pods.values():
                    if labels <= pod["metadata"].get("labels", {}).items():
                        shared += f"{pod['status']['podIP']} {of}\n"
            for name, pod in pods.items():
                _rewrite(self._hosts(name), f"{shared}{pod['status']['podIP']} {name}\n")


def _number_inside(process: psutil.Process) -> int | None:
    """The process's number in its own namespace; None if it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(re.findall(r"^NSpid:.*\t(\d+)$", status, re.MULTILINE)[0])


def _rewrite(file: Path, text: str) -> None:
    """Change a file that pods have mounted, and may be reading: it is never empty, and its first lines stay."""
    if not file.exists():
        file.write_text(text)
    elif file.read_text() != text:
        with file.open("r+") as written:
            written.write(text)
            written.truncate()


def expanded(text: str, variables: dict[str, str]) -> str:
    """With the values of `$(NAME)`; a name without a value stays."""
    return re.sub(r"\$\(([^)]+)\)", lambda found: variables.get(found[1], found[0]), text)


def field(pod: Resource, path: str) -> str:
    """The value of a pod's field, as `fieldRef` gives it."""
    found: Any = pod
    for name in path.split("."):
        found = found[name]
    return str(found)


def own_by(folder: Path, group: int) -> None:
    """Give a volume to a group, as the kubelet does for `fsGroup` each time that a pod starts: the group may read and
    write all, and owns what will be created.
    """
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        os.chown(path, -1, group)
        more = 0o660 | (stat.S_ISGID | 0o110 if stat.S_ISDIR(status.st_mode) else 0)
        path.chmod(stat.S_IMODE(status.st_mode) | more)


def _written(folder: Path, content: dict[str, str]) -> Path:
    folder.mkdir(parents=True)
    for name, text in content.items():
        (folder / name).write_text(text)
    return folder
