"""Appending: rows -> blocks -> record batches in Kafka's logs, in a transaction that others begin and end.

blocks partitioner murmur2              encode rows as complete record batches, one partition each
encode_settings                         how they are encoded, and for which topics
staging staging_space files temporary   pass blocks from tasks to the driver
append append_task append_mode          append blocks, on the driver or in tasks of the executors
barrier                                 decides whether everything was appended exactly once
produce send_plan                       sends record batches in sequence order, with retries
sequences producer_ids formats          epochs and sequence numbers; writes without a transaction
report                                  what each step reports to the next one
"""

import spark_kafka_eos.protocol  # noqa: F401 - first: it defers kafka-python, whose messages are imported here
