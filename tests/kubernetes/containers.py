"""A process in a container: mount and process namespaces of its own, a root file system of its own, an ordinary user.

It has no network of its own: each container has the loopback interface of the machine, where brokers listen. Neither
memory nor processors are limited. Needs Linux and root.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder or file of the machine at a path of the container."""

    source: Path
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One process. What it writes outside of its mounts goes to `scratch`, or to the root itself without one.

    `restricted` is what Kubernetes' profile of that name asks for: no capabilities, and no program gives any. The
    process itself has the number 1, those that it starts count on from `first_pid`.
    """

    root: Path
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: int = 0
    group: int = 0
    groups: Sequence[int] = ()
    mounts: Sequence[Mount] = ()
    scratch: Path | None = None
    read_only: bool = False
    restricted: bool = False
    hostname: str = "container"
    first_pid: int | None = None

    def arguments(self) -> list[str]:
        """The command that runs it. The process is its only child, and it ends with that one's exit code, which is 128
        and the signal's number if one ended it. Kill the child, and all that it started is killed with it.
        """
        # The first process that the outer shell forks is the one with the number 1. `unshare --fork` would do that as
        # well, but ends with 1 if SIGKILL ended the process.
        outer = 'sh -ec "$0"; exit $?'
        return ["unshare", "--mount", "--uts", "--ipc", "--pid", "/bin/sh", "-c", outer, "\n".join(self._script())]

    def _script(self) -> list[str]:
        steps: list[list[str | Path]] = [["hostname", self.hostname], ["mount", "--make-rprivate", "/"]]
        if self.scratch is None:
            at = self.root
            steps.append(["mount", "--bind", at, at])
        else:
            at, upper, work = (self.scratch / name for name in ("merged", "upper", "work"))
            for folder in (at, upper, work):
                folder.mkdir(parents=True, exist_ok=True)
            layers = f"lowerdir={self.root},upperdir={upper},workdir={work}"
            steps.append(["mount", "-t", "overlay", "-o", layers, "overlay", at])
        for mount in self.mounts:
            place = at / inside(self.root, mount.target)
            folder = place if mount.source.is_dir() else place.parent
            steps.append(["mkdir", "-p", folder])
            if not mount.source.is_dir():
                steps.append(["touch", place])
            steps.append(["mount", "--bind", mount.source, place])
            if mount.read_only:
                steps.append(["mount", "-o", "remount,bind,ro", place])
        steps += [["mount", "-t", "proc", "proc", at / "proc"], ["mount", "--rbind", "/dev", at / "dev"]]
        if self.first_pid is not None:
            last = shlex.quote(f"{at}/proc/sys/kernel/ns_last_pid")
            steps.append(["sh", "-c", f"echo {self.first_pid} > {last}"])
        if self.read_only:
            steps.append(["mount", "-o", "remount,ro" if self.scratch else "remount,bind,ro", at])
        return [*(shlex.join(map(str, step)) for step in steps), f"exec {shlex.join(map(str, self._as_user(at)))}"]

    def _as_user(self, at: Path) -> list[str]:
        groups = ["--groups", ",".join(map(str, self.groups))] if self.groups else ["--clear-groups"]
        limits = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"] if self.restricted else []
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        return [
            *("chroot", str(at), "setpriv", "--reuid", str(self.user), "--regid", str(self.group), *groups, *limits),
            *("env", "-i", "-C", self.folder, *variables, *self.command),
        ]


def inside(root: Path, target: str) -> Path:
    """Where a path of the container is below its root, whose links are followed as in the container."""
    found, left = Path(), list(Path(target).parts[1:])
    while left:
        part = left.pop(0)
        if (root / found / part).is_symlink():
            to = (root / found / part).readlink()
            found = Path() if to.is_absolute() else found
            left = [*(each for each in to.parts if each != "/"), *left]
        else:
            found = found.parent if part == ".." else found / part
    return found
