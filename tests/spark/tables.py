"""Tables of one format, in a Spark that has it: what table_protocol.py needs of each."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from kafka_eos_python import beside
from spark_kafka_eos.participants.participant import Participant

CORES = 3


class Interrupted:
    """A participant whose commit is interrupted: `before` and `after` happen around what it next sends to the table."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def interrupt(self, send: Callable[[], Any]) -> Any:
        before, after, self.before, self.after = self.before, self.after, None, None
        if before:
            before()
        answer = send()
        if after:
            after()
        return answer


@dataclass
class Tables(ABC):
    spark: SparkSession
    conf: Mapping[str, str]

    participant_class: ClassVar[type]
    interrupted_class: ClassVar[type]
    overtaken: ClassVar[str]  # what the format itself says of a commit that it refuses, if it does
    kill_at: ClassVar[tuple[str, ...]]  # failpoints up to the table's commit

    @property
    def arguments(self) -> list[str]:
        """Those of spark-submit for another driver."""
        return submitted(self.conf)

    @abstractmethod
    def create(self, folder: Path, columns: str = "id BIGINT NOT NULL, seen STRING") -> str:
        """A new table's name. `folder` is the test's own."""

    @abstractmethod
    def merging(self, table: str) -> Callable[..., object]:
        """The participant's `merge` by the column id."""

    def participant(
        self, table: str, *, key: str = "sales", spark: SparkSession | None = None, **options: Any
    ) -> Participant:
        made: Participant = self.participant_class(spark or self.spark, table, key=key, **options)
        return made

    def interrupted(self, table: str, *, key: str = "sales", **options: Any) -> Any:
        return self.interrupted_class(self.spark, table, key=key, **options)

    def ids(self, table: str) -> list[int]:
        return sorted(row.id for row in self.read(table))

    def read(self, table: str) -> list[Any]:
        """The rows that are there now."""
        return self.spark.table(table).collect()

    def rows(self, *numbers: int, seen: str = "") -> DataFrame:
        return self.spark.createDataFrame([(number, seen) for number in numbers], "id BIGINT, seen STRING")


def session(conf: Mapping[str, str]) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = beside(sys.executable)
    builder = SparkSession.builder.master(f"local[{CORES}]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def submitted(conf: Mapping[str, str]) -> list[str]:
    """The same for spark-submit."""
    return ["--master", "local[2]", *(part for each in conf.items() for part in ("--conf", "=".join(each)))]
