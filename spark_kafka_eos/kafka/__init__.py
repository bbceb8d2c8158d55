"""A Kafka client whose values are Arrow columns, and whose transactions several processes share.

auth/           TLS and SASL: from properties to the exchange
wire/           pure bytes <-> Arrow columns: record batches v2 and older, compression
protocol/       connections, coordinators, retries, error codes, what brokers answer
fetching/       from ranges of offsets to visible record batches
producing/      sends record batches in sequence order, with retries; sequences, producer ids, partitioners
client_options          what a connection needs to know
partitions producer     values that all of them exchange
reserved_topics         topics that nothing may be sent to
errors logs words       what can go wrong; loggers whose lines are printable; words in messages

Used by the connector, its tools and its test kit. It imports nothing of them, neither Spark nor the ledger nor the
connector's options: `lint-imports` checks it.
"""
