"""Where a driver's fork server is found: a socket in a folder that only its user can enter.

The launcher imports this, and only what Python has imported at its own start anyway.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False  # as in request.py
if TYPE_CHECKING:
    from collections.abc import Iterator

_PRIVATE = 0o700


def started(pid: int) -> tuple[int, int] | None:
    """A process's start, in clock ticks after the machine's, and its parent's process ID; None if there is no such
    process. The start tells it from another process that has its process ID later. Source: proc_pid_stat(5).
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes longer than all of this
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[19]), int(fields[1])


def folder() -> str | None:
    """The user's folder of sockets, which is made if it is missing. None if it cannot be made, or is not what it should
    be: a folder, no link, of this user, which nobody else may enter.
    """
    path = f"{os.environ.get('XDG_RUNTIME_DIR') or '/tmp'}/kafka-eos-python-{os.getuid()}"  # noqa: S108 - see above
    try:
        os.mkdir(path, _PRIVATE)  # noqa: PTH102
    except FileExistsError:
        pass
    except OSError:
        return None
    status = os.lstat(path)
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
    return path if private else None


def name_of(pid: int, start: int) -> str:
    """The name of the socket of the server that was started for this process."""
    return f"{pid}-{start}"


def abandoned(names: list[str]) -> Iterator[str]:
    """Those of sockets whose driver has ended: their server was killed, or it would have removed them."""
    for name in names:
        pid, _, start = name.partition("-")
        if pid.isdigit() and start.isdigit():
            process = started(int(pid))
            if process is None or process[0] != int(start):
                yield name
