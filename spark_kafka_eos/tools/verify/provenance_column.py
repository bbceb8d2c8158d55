"""The column that `kafka-eos verify` needs: the origin of a record, from the source's columns."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_kafka_eos.tools.verify.provenance_bytes import MAGIC


def provenance(batch_id: int, *, attempt: int = -1) -> Column:
    """Binary, 28 bytes, from the source's columns `partition` and `offset` (verify.provenance_bytes).

    The payload may be appended to it.

    In foreachBatch: `batch_df.select("key", F.concat(provenance(batch_id), "value").alias("value"))`.
    """
    digits = (
        F.lit(f"{MAGIC:08X}"),
        F.lpad(F.hex("partition"), 8, "0"),
        F.lpad(F.hex("offset"), 16, "0"),
        F.lit(f"{batch_id:016X}{attempt & 0xFFFFFFFF:08X}"),
    )
    return F.unhex(F.concat(*digits))
