"""The alternatives to compare with. Separate from sides.py, so that the command line's help does not need Spark."""

from __future__ import annotations

from enum import StrEnum


class Against(StrEnum):
    """Spark's own connector, the usual recipe in foreachBatch, and two clients without Spark."""

    BUILTIN = "builtin"
    RECIPE = "recipe"
    LIBRDKAFKA = "librdkafka"
    JAVA = "java"


CLIENTS = frozenset({Against.LIBRDKAFKA, Against.JAVA})
