"""Logging for the sink's commit, which runs in a separate process of Spark, where the application cannot configure it.

Lines go to stderr, which Spark forwards to the driver's stderr (PythonWorkerFactory.redirectStreamsToStderr). There is
no better place: the query's progress has no custom metrics of a Python sink.
"""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show(level: str) -> None:
    """Log this package's messages of `level` and above to stderr, unless this process already has log handlers.

    It has one with `spark.sql.pyspark.worker.logging.enabled`; `spark.tvf.python_worker_logs()` then returns the lines.
    """
    ours = logging.getLogger("spark_kafka_eos")
    ours.setLevel(level.upper())
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        ours.addHandler(handler)
