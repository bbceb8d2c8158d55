"""What `kafka-eos-python` runs: a process forked by the driver's server, or else the plain Python.

`PYSPARK_PYTHON` names the script in `bin/`. It runs this with `-E`, so that Python itself does not look into Spark's
archives yet.

A server is started in the background as early as its driver is known: for the driver's own Python, while the JVM
starts or has just started; else for the first of Spark's processes that only drivers have, which does not wait for it.
"""

from __future__ import annotations

import os
import sys

from kafka_eos_python.request import LIMITS_OF_MEMORY, can_be_forked, is_planner

TYPE_CHECKING = False  # as in request.py
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWITCH = "KAFKA_EOS_FORK_SERVER"  # "off": the plain Python in any case
_GATEWAY = "PYSPARK_GATEWAY_PORT"  # set by spark-submit for the driver's Python, which its JVM starts
_BEFORE_SPARK = "/find_spark_home.py"  # which spark-submit's scripts run
_LAST = 1024  # descriptors that may be open
_GENERATIONS = 2  # the JVM, and the driver's Python that has started it


def main() -> None:
    """Become what `python arguments…` would be. Does not return."""
    arguments = sys.argv[1:]
    forked = can_be_forked(arguments)
    owner = owner_to_serve(arguments, os.environ, os.getpid(), os.getppid())
    if (forked or owner is not None) and hindrance(os.environ) is None:
        if forked:
            fork_from(os.getppid(), arguments, _GENERATIONS)
        if owner is not None:
            begin_server(owner)
    _become(arguments, os.environ)


def hindrance(environment: Mapping[str, str]) -> str | None:
    """Why nothing is forked here, in words; None if nothing is in the way."""
    from kafka_eos_python.place import folder

    if environment.get(SWITCH) == "off":
        return f"{SWITCH}=off"
    if any(name in environment for name in LIMITS_OF_MEMORY):
        return "its memory is limited"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return "it needs Linux 5.3 or later"
    return None if folder() else "no folder for its socket that only this user can enter, see XDG_RUNTIME_DIR"


def owner_to_serve(arguments: Sequence[str], environment: Mapping[str, str], own: int, parent: int) -> int | None:
    """The process that a server is to be started for: the JVM that has started this one, or the driver that this one
    becomes; None if there will be nothing to fork.
    """
    if is_planner(arguments):
        return parent
    if not arguments or arguments[0].startswith("-") or arguments[0].endswith(_BEFORE_SPARK):
        return None
    return parent if _GATEWAY in environment else own


def fork_from(driver: int, arguments: Sequence[str], generations: int = 1) -> None:
    """Have the process forked by the server of `driver`, or of one of its nearest ancestors; returns if it was not."""
    from kafka_eos_python import forked
    from kafka_eos_python.request import described

    if any(os.isatty(number) for number in (0, 1, 2)):
        return  # Python writes to it by lines
    connection = forked.find(driver, generations)
    if connection:
        try:
            request = described(arguments)
        except OSError:  # its folder was removed
            return
        forked.stand_in(connection, request)


def begin_server(owner: int) -> None:
    """Start a server for the process `owner`, unless it has one, in a process that nobody waits for."""
    from kafka_eos_python.place import folder, name_of, started
    from kafka_eos_python.request import for_a_server

    place, process = folder(), started(owner)
    if place is None or process is None:
        return
    name = name_of(owner, process[0])
    if os.path.lexists(f"{place}/{name}"):
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setpgid(0, 0)  # a terminal's signals are not for it
        if os.fork() == 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            os.closerange(3, _LAST)  # what somebody keeps open for the driver is not for it
            _become(["-m", "kafka_eos_python.server", f"{place}/{name}"], for_a_server(os.environ))
    finally:
        os._exit(0)


def _become(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Replace this process by the same Python, without Spark's archives in its path if it has the same PySpark."""
    variables = dict(environment)
    if path := variables.get("PYTHONPATH"):
        from kafka_eos_python.archives import without_archives

        variables["PYTHONPATH"] = os.pathsep.join(without_archives(path.split(os.pathsep), sys.path))
    os.execve(sys.executable, [sys.executable, *arguments], variables)  # noqa: S606  # no shell
