"""A pytest plugin: tables of Apache Iceberg as iceberg_tables.py has them, reached through a REST catalog.

The server is one of the test's own: Iceberg's handlers (`CatalogHandlers`) do the work, on the same JDBC catalog. It
can be interrupted around a commit of the participant, answer wrongly, and be down.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.spark.iceberg_tables import IcebergTables, in_jdbc
from tests.spark.tables import session

STATUS = {"CommitFailedException": 409, "NoSuchTableException": 404}


class RestCatalog:
    """`before` happens ahead of the next commit of a key, which is then answered with `answer`, if that is set."""

    def __init__(self) -> None:
        self.before: Callable[[], object] | None = None
        self.answer: int | None = None
        self.refused: list[str] = []
        self.backend: Any = None
        self._server = self._started(0)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def connect(self, jvm: Any, configuration: Any, properties: dict[str, str]) -> None:
        self._rest = jvm.org.apache.iceberg.rest
        self._all_snapshots = getattr(self._rest, "RESTCatalogProperties$SnapshotMode").ALL
        self._names = jvm.org.apache.iceberg.catalog.TableIdentifier
        self.backend = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
        self.backend.setConf(configuration)
        self.backend.initialize("lake", properties)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def down(self) -> Iterator[None]:
        port = self._server.server_port
        self.close()
        yield
        self._server = self._started(port)

    def respond(self, path: str, body: str | None) -> tuple[int, str]:
        if path.startswith("/v1/config"):
            return 200, '{"defaults": {}, "overrides": {}}'
        parts = path.partition("?")[0].split("/")  # ["", "v1", "namespaces", namespace, "tables", table]
        if len(parts) != 6 or parts[4] != "tables":
            return 404, _error(f"no such path: {path}", "NotFoundException", 404)
        name = self._names.parse(f"{parts[3]}.{parts[5]}")
        handlers, answer = self._rest.CatalogHandlers, None
        try:
            if body is None:
                response = handlers.loadTable(self.backend, name, self._all_snapshots)
            else:
                if '"tag"' in body:
                    before, answer, self.before, self.answer = self.before, self.answer, None, None
                    if before:
                        before()
                response = handlers.updateTable(
                    self.backend, name, self._rest.requests.UpdateTableRequestParser.fromJson(body)
                )
        except Py4JJavaError as error:
            kind, said = error.java_exception.getClass().getSimpleName(), error.java_exception.getMessage()
            self.refused.append(said)
            return STATUS.get(kind, 500), _error(said, kind, STATUS.get(kind, 500))
        if answer is not None:
            return answer, _error("as the test wants it", "RuntimeException", answer)
        return 200, self._rest.responses.LoadTableResponseParser.toJson(response)

    def _started(self, port: int) -> ThreadingHTTPServer:
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def _answer(self, body: str | None) -> None:
                status, content = catalog.respond(self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content.encode())))
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, *_: object) -> None:
                """Tests show what they need."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        Thread(target=server.serve_forever, daemon=True).start()
        return server


def _error(said: str, kind: str, status: int) -> str:
    return json.dumps({"error": {"message": said, "type": kind, "code": status}})


class IcebergRestTables(IcebergTables):
    catalog: RestCatalog

    def create(self, folder: Path, columns: str = "id BIGINT NOT NULL, seen STRING") -> str:
        return super().create(folder, columns).replace("lake.", "rest.", 1)


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRestTables]:
    catalog = RestCatalog()
    folder = tmp_path_factory.mktemp("lake")
    conf = in_jdbc(folder) | {
        "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.rest.type": "rest",
        "spark.sql.catalog.rest.uri": catalog.url,
        "spark.sql.catalog.rest.rest-metrics-reporting-enabled": "false",
    }
    spark = session(conf)
    of_catalog = "spark.sql.catalog.lake."
    properties = {name.removeprefix(of_catalog): value for name, value in conf.items() if name.startswith(of_catalog)}
    catalog.connect(spark._jvm, spark._jsparkSession.sessionState().newHadoopConf(), properties)
    made = IcebergRestTables(spark, conf)
    made.catalog = catalog
    yield made
    spark.stop()
    catalog.close()
