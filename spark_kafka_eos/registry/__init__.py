"""Values whose schemas are in a schema registry, as columns of Spark: `from_confluent` and `to_confluent`.

columns                                          the two functions; the only place here with PySpark
decoding encoding                                from a column of framed values, and back
framing client                                   the schema of each value; the registry
formats                                          what a schema type does
rows                                             cursors into the bytes of all rows
avro avro_schema avro_reading avro_writing       Avro
protobuf json_schema                             the others

Needs `pip install "spark-kafka-eos[registry]"` and Spark 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.registry.columns import from_confluent, to_confluent

__all__ = ["from_confluent", "to_confluent"]

__getattr__ = lazy(
    __name__,
    {
        "from_confluent": "spark_kafka_eos.registry.columns",
        "to_confluent": "spark_kafka_eos.registry.columns",
    },
)
