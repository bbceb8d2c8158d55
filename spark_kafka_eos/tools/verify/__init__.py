"""The checker of `kafka-eos verify`: checks that a query's output was written exactly once.

verification                        `verify`: reads a topic in several ways and checks every invariant
scan follower                       the two readers: this package's, also of dead letters' origins, and librdkafka's
evidence history outcomes           the data that is checked
due                                 how much of the source must be in the output
provenance_bytes provenance_column  the origin of a record, stored in its value
invariants origins contents         the six invariants of a topic
table                               the seventh: a table has the same rows
findings                            the results
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_eos.lazy import lazy

if TYPE_CHECKING:
    from spark_kafka_eos.tools.verify.provenance_column import provenance
    from spark_kafka_eos.tools.verify.table import ComparedColumns
    from spark_kafka_eos.tools.verify.verification import Report, verify

__all__ = ["ComparedColumns", "Report", "provenance", "verify"]

__getattr__ = lazy(
    __name__,
    {
        "ComparedColumns": "spark_kafka_eos.tools.verify.table",
        "Report": "spark_kafka_eos.tools.verify.verification",
        "provenance": "spark_kafka_eos.tools.verify.provenance_column",
        "verify": "spark_kafka_eos.tools.verify.verification",
    },
)
