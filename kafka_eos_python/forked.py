"""The launcher's part in a forked process: asks the fork server for it, and stands in for it.

The process is the server's child, not the launcher's, but whoever started the launcher knows only this one. So it
lives as long, passes SIGTERM on, and ends as the process ends. A key in a terminal, whose signal goes to a whole
process group, reaches the process as it would reach a plain Python, because the process is in the launcher's group; the
launcher ignores it. If the launcher is killed, its connection ends, and the server kills the process.

`_socket` and `_signal` are what `socket` and `signal` are made of, without ten milliseconds of classes.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import _socket
import marshal
import os
import sys

from kafka_eos_python.place import folder, name_of, started

TYPE_CHECKING = False  # as in request.py
if TYPE_CHECKING:
    from kafka_eos_python.request import Request

ACCEPTED, REFUSED, GO = b"a", b"r", b"g"
SIZE = 4  # bytes of a length and of a status
_SECONDS = 3.0  # to wait for a server that is in the middle of an import
_CREDENTIALS = 12  # bytes of a struct ucred: process, user, group; each 4 bytes


def connect(path: str) -> _socket.socket | None:
    """A connection to the server at this socket; None if there is none, or if it is another user's."""
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    except OSError:
        return None  # no descriptor is left
    try:
        connection.settimeout(_SECONDS)
        connection.connect(path)
        if peer(connection) == os.getuid():
            return connection
    except OSError:
        pass  # nobody listens any more
    connection.close()
    return None


def peer(connection: _socket.socket) -> int | None:
    """The user at the other end; None if it is not a process of this machine or container. Source: unix(7)."""
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS)
    process, user = (int.from_bytes(credentials[at : at + 4], sys.byteorder) for at in (0, 4))
    return user if process else None


def find(pid: int, generations: int) -> _socket.socket | None:
    """A connection to the server of the process `pid`, or of one of its nearest ancestors."""
    place = folder()
    for _ in range(generations if place else 0):
        process = started(pid)
        if process is None:
            return None
        start, parent = process
        path = f"{place}/{name_of(pid, start)}"
        if os.path.lexists(path) and (connection := connect(path)):
            return connection
        pid = parent
    return None


def ask(connection: _socket.socket, request: Request) -> bool:
    """Whether the server has forked the process. If not, nothing of it runs, nor will it: a server that answers too
    late is not told to go on.
    """
    try:
        described = marshal.dumps(dict(request))
        descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
        connection.sendmsg([len(described).to_bytes(SIZE, sys.byteorder)], rights)
        connection.sendall(described)
        if connection.recv(1) != ACCEPTED:
            return False
        connection.settimeout(None)
        connection.sendall(GO)
    except OSError:
        return False
    return True


def stand_in(connection: _socket.socket, request: Request) -> None:
    """Have the process forked, wait for its end, and end in the same way. Returns if it was not forked.

    SIGTERM is held back until it can be passed on, or until this process becomes the plain Python.
    """
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM,))
    forked = ask(connection, request)
    if forked:
        for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT):
            _signal.signal(number, _signal.SIG_IGN)
        _signal.signal(_signal.SIGTERM, lambda number, _: _pass_on(connection, number))
        _let_go()
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    if forked:
        status = _end(connection)
        # Without a status the server was killed, and the process with it.
        code = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder)) if status else -_signal.SIGKILL
        if code < 0:
            _end_by(-code)
        os._exit(code)
    connection.close()


def _pass_on(connection: _socket.socket, number: int) -> None:
    try:
        connection.sendall(bytes([number]))
    except OSError:
        return  # the server was killed, which ends this process, too


def _end(connection: _socket.socket) -> bytes:
    """The status with which the process has ended; nothing if the server was killed."""
    try:
        return connection.recv(SIZE)
    except OSError:
        return b""


def _let_go() -> None:
    """Close what the process has now, so that whoever is at the other end sees when it is closed there."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


def _end_by(number: int) -> None:
    if number not in (_signal.SIGKILL, _signal.SIGSTOP):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (number,))
    os.kill(os.getpid(), number)
