"""How large the Arrow batches are in which Spark passes rows to Python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession

from spark_kafka_eos.spark.jvm import is_classic

_LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
_BYTES = 4 << 20


@contextlib.contextmanager
def small_arrow_batches(session: SparkSession) -> Iterator[None]:
    """While a job of this classic session is planned and runs: Arrow batches of at most 4 MiB, unless the session has a
    limit of its own. With Spark's, 64 MB, each batch of large values is in memory that the JVM uses for the first time:
    four times as many new pages.
    """
    if not is_classic(session) or session.conf.get(_LIMIT, None) is not None:
        yield
        return
    session.conf.set(_LIMIT, str(_BYTES))
    try:
        yield
    finally:
        session.conf.unset(_LIMIT)
