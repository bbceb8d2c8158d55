"""What this PySpark can do. Each feature is detected, not concluded from a version number: vendors' runtimes backport.

| feature                                                    | since | without it |
|------------------------------------------------------------|-------|------------|
| foreachBatch with the built-in source                      | 3.5   | ImportError |
| Python data sources: `format("kafka-eos")`                 | 4.0   | Spark does not find the format |
| Arrow batches for a stream's writer (`StreamArrowWriter`)  | 4.1   | they come with the batch writer's class |
| functions of Arrow columns (registry.columns)              | 4.1   | from_confluent and to_confluent: ImportError |
| `repartitionById` (spark.shuffled)                         | 4.1   | `repartition` by a hash key of the slot |
| `containsStatefulOperator` (spark.jvm)                     | 4.2   | every skipped batch is recomputed |
| a micro-batch's start and limit, for its reader (`LIMITS`) | 4.2   | availableNow: one micro-batch, limited |
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource as DataSource  # noqa: PLC0414 - handed on
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.datasource import DataSourceStreamReader
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow): ...


__all__ = ["LIMITS", "DataSource", "StreamArrowWriter", "StreamReader", "require_packages", "require_spark"]

_OLDEST = (3, 5)

# Whether Spark tells a stream's reader where a micro-batch starts and how much it may read.
LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None


def require_spark() -> None:
    """Raise ImportError if this PySpark is too old for everything here."""
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST:
        raise ImportError(f"spark-kafka-eos needs PySpark 3.5 or later, but this is {pyspark.__version__}")


def require_packages(find: Callable[[str], object] = find_spec) -> None:
    """Raise ImportError if this Python has this package without those that it needs: it is not the one that pip
    installed it for.
    """
    needed = {"pyarrow": "pyarrow", "numpy": "numpy", "kafka": "kafka-python", "google_crc32c": "google-crc32c"}
    missing = [name for module, name in needed.items() if find(module) is None]
    if missing:
        raise ImportError(
            f"format('kafka-eos') runs on {sys.executable}, which lacks {', '.join(missing)}: install spark-kafka-eos "
            "with pip for that Python, or set the environment variables PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to "
            "the Python that has it, before Spark starts. 'kafka-eos doctor' shows which Python Spark uses."
        )


def __getattr__(name: str) -> type:
    """The base classes of a data source, made of what there is. Raises ImportError if there are no data sources."""
    if name not in __all__:
        raise AttributeError(name)
    require_spark()
    if find_spec("pyspark.sql.datasource") is None:
        raise ImportError(
            f"format('kafka-eos') needs PySpark 4.0 or later, but this is {pyspark.__version__}. Use "
            "TransactionalWriter in foreachBatch, with Spark's built-in Kafka source."
        )
    from pyspark.sql import datasource

    match name:
        case "DataSource":
            return datasource.DataSource
        case "StreamReader" if LIMITS:
            from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

            return type(name, (datasource.DataSourceStreamReader, SupportsTriggerAvailableNow), {})
        case "StreamReader":
            return datasource.DataSourceStreamReader
        case "StreamArrowWriter" if hasattr(datasource, "DataSourceStreamArrowWriter"):
            return datasource.DataSourceStreamArrowWriter
        case "StreamArrowWriter":
            # Spark 4.0 asks only for the batch writer's class when it decides between Arrow batches and rows.
            return type(name, (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter), {})
    raise AssertionError(name)
