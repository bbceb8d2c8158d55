"""`kafka-eos-python`: the Python of Spark's processes, which starts them sooner.

Before a query of this format commits its first batch, Spark starts about seven Python processes, one after another, and
each imports PySpark, PyArrow, NumPy and this connector anew. This Python does it once: a fork server imports them while
the JVM starts, and processes are forked from it. Whatever cannot be forked becomes the plain Python.

    bin/kafka-eos-python    the script
    launcher.py             what the script runs: forked, or else the plain Python
    forked.py               asks the server for a process, and stands in for it
    place.py                where the server is found, and who may be there
    request.py              what a process to be forked is like, and which ones can be
    server.py               imports, and forks
    archives.py             a PYTHONPATH without PySpark's archives, for the plain Python and for the server
    installed_pyspark.py    the same for each other Python of Spark's; `spark_kafka_eos.pth`, in site-packages, calls it
    plain.py                the fork server for these, once a query uses the format

It is a package of its own because its launcher has to start in milliseconds: to import `spark_kafka_eos` takes more
than all that it does. It imports nothing of the connector; the server imports modules by their names.

What a process of Spark sees of this:

1. Arguments, environment, working folder, file descriptors 0 to 2, signals that are ignored or blocked, process group,
   umask and limits are those that it was started with. A process for which one of them cannot be had, or for which
   something differs that mattered when modules were imported, is not forked.
2. The launcher lives as long as the process, with its process ID towards Spark. It passes SIGTERM on and ends as the
   process ends. If it is killed, the server kills the process; if the server is killed, the kernel does.
3. The server forks only while it has one thread. It starts none: with one thread for OpenBLAS and none for jemalloc.
4. One server belongs to one driver. It ends with it, or after a while without processes.
5. Only its own user can reach it: the socket is in a folder of mode 0700, and both sides ask the kernel who is there.
"""

from __future__ import annotations

import os


def beside(python: str) -> str:
    """`kafka-eos-python` of the environment that `python` belongs to; `python` itself if it is not installed there."""
    script = os.path.join(os.path.dirname(python), "kafka-eos-python")  # noqa: PTH118, PTH120 - pathlib takes longer
    return script if os.path.isfile(script) else python  # noqa: PTH113
