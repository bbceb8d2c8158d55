"""Logging for the sink's commit, which runs in a separate process of Spark, where the application cannot configure it.

Lines go to stderr, which Spark forwards to the driver's stderr (PythonWorkerFactory.redirectStreamsToStderr). There is
no better place: the query's progress has no custom metrics of a Python sink.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonLines(logging.Formatter):
    """Each line is a JSON object: time, level, logger, and the message, or a batch's report."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        return json.dumps(fields | (getattr(record, "report", None) or {"message": record.getMessage()}))


def show(level: str, log_format: str = "text") -> None:
    """Log this package's messages of `level` and above to stderr, unless this process already has log handlers.
    `log_format` is the option `logFormat`.

    It has one with `spark.sql.pyspark.worker.logging.enabled`; `spark.tvf.python_worker_logs()` then returns the lines.
    """
    ours = logging.getLogger("spark_kafka_eos")
    ours.setLevel(level.upper())
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_FORMAT))
        ours.addHandler(handler)
