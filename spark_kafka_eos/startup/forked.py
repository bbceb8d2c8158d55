"""The processes that Spark starts after the data source was created are forked (`../kafka_eos_python/plain.py`)."""

from __future__ import annotations

import sys


def begin_fork_server() -> None:
    """Start the server of this session, in a worker of Spark in which `spark_kafka_eos.pth` has found the installed
    PySpark. In any other process, nothing.
    """
    if plain := sys.modules.get("kafka_eos_python.plain"):
        plain.begin_server_in_worker()
