"""A Spark Connect server in processes of its own, as a cluster has one, and its clients, which know its address."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from spark_kafka_eos.testing.driver import Driver, python_environment
from spark_kafka_eos.testing.ports import free_ports
from tests.listening import listens

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"  # as sbin/start-connect-server.sh has it
_SECONDS = 120


class ConnectServer:
    """The server on two local cores, as a context manager that kills its processes at the end. `driver` is its process.

    `env` is for its Python workers, too. It is ready when it can be created. `port`: that of a server before it.
    """

    def __init__(self, log: Path, *, env: Mapping[str, str] | None = None, port: int | None = None) -> None:
        self.log, self.port = log, port or free_ports(1)[0]
        settings = {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.connect.grpc.binding.port": str(self.port),
        }
        conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        self.driver = Driver(
            Path("spark-internal"),
            [],
            conf=["--class", _SERVER, "--master", "local[2]", *conf],
            env={**python_environment(), **(env or {})},
            log=log,
        )
        try:
            self.driver.wait_until(lambda: listens(self.driver.pid, self.port), timeout=_SECONDS)
        except BaseException:
            self.driver.kill()
            raise

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def client(
        self,
        job: Path,
        arguments: Sequence[str],
        *,
        log: Path,
        python: str | Path = sys.executable,
        url: str | None = None,
    ) -> Driver:
        """A program that uses the server, as a process that can be killed alone; `SPARK_REMOTE` is the address."""
        given = {**python_environment(), "SPARK_REMOTE": url or self.url}
        return Driver(job, arguments, conf=[], submit=python, env=given, log=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.kill()
