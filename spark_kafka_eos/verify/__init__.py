"""The checker behind `kafka-eos verify`: was an output topic written exactly once?

verification               `verify`: reads a topic in several ways and checks every invariant
scan follower              the two readers: this package's, and librdkafka's
evidence history outcomes  what is known of a topic
provenance                 where a record came from, written into its value; provenance_column for Spark
invariants origins contents   the six invariants
findings                   what was found
"""
