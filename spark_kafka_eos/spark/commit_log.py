"""What the sink's commit logs, made visible: it runs in a process of Spark's own, where no application sets logging up.

Spark passes that process's stderr on to the driver's (PythonWorkerFactory.redirectStreamsToStderr), so that is where
the lines go. There is no better place: the progress of a query has no metrics of a Python sink but its number of rows.
"""

from __future__ import annotations

import logging

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show(level: str) -> None:
    """Write this package's log to stderr from `level` on, unless this process has handlers already.

    It has one with `spark.sql.pyspark.worker.logging.enabled`: then `spark.tvf.python_worker_logs()` has the lines.
    """
    ours = logging.getLogger("spark_kafka_eos")
    ours.setLevel(level.upper())
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        ours.addHandler(handler)
