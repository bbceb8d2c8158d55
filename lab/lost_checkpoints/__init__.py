"""Proves that Kafka is checkpoint enough for a query without state: each killed driver loses its checkpoint, too.

query    what the drivers run
run      kills drivers, deletes their checkpoints, and verifies the output
"""
