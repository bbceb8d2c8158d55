"""Values whose schemas are in a schema registry: `from_confluent` and `to_confluent` for columns of Spark,
`confluent_decoder` and `confluent_encoder` for Arrow arrays. And of Kafka Connect's JSON, whose records have their
schema: `from_connect`, `connect_decoder`.

columns                                          for Spark; the only place here with PySpark
arrow                                            for Arrow, and what the arguments mean
decoding                                         from a column of framed values
framing client java_properties                   the schema of each value; the registry; its options in Java's files
formats                                          what a schema type does
rows kinds                                       cursors into the bytes of all rows; what an Arrow type is
avro avro_schema avro_reading avro_writing       Avro
avro_logical avro_defaults avro_extent           what logical types become; a field's default; where a value ends
protobuf proto_text                              Protobuf; the text of a .proto file
json_schema json_shapes json_values              JSON Schema
connect_types connect_json connect_json_schema   what names of Kafka Connect's types mean; its JSON, and its JSON Schema

Needs `pip install "spark-kafka-eos[registry]"`, and `columns` Spark 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.registry.arrow import confluent_decoder, confluent_encoder, connect_decoder
    from spark_kafka_eos.registry.columns import from_confluent, from_connect, to_confluent
    from spark_kafka_eos.registry.java_properties import registry_from_properties

__all__ = [
    "confluent_decoder",
    "confluent_encoder",
    "connect_decoder",
    "from_confluent",
    "from_connect",
    "registry_from_properties",
    "to_confluent",
]

__getattr__ = lazy(
    __name__,
    {
        "confluent_decoder": "spark_kafka_eos.registry.arrow",
        "confluent_encoder": "spark_kafka_eos.registry.arrow",
        "connect_decoder": "spark_kafka_eos.registry.arrow",
        "from_confluent": "spark_kafka_eos.registry.columns",
        "from_connect": "spark_kafka_eos.registry.columns",
        "registry_from_properties": "spark_kafka_eos.registry.java_properties",
        "to_confluent": "spark_kafka_eos.registry.columns",
    },
)
