"""Producing: encoded record batches -> acknowledged record batches, in a transaction that others begin and end.

produce send_plan           sends record batches in sequence order, with retries
sequences producer_ids      epochs and sequence numbers; producer ids for writes without a transaction
partitioner murmur2         which partition a key belongs to, as librdkafka and the Java client choose it
"""
