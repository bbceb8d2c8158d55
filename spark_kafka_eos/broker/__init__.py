"""Everything that talks to brokers; the only place with sockets, besides tools.

    connection.py authentication.py oauth.py versions.py   one connection: frames, TLS, SASL, API versions
    cluster.py      leaders, coordinators, connections, and requests that are tried again
    retry.py        the one loop of retries, driven by `core.error_codes`
    transactions.py groups.py       the coordinators of a transactional.id and of a consumer group
    produce.py      append record batches in sequence order
    fetch.py fetch_response.py offsets.py   read ranges of offsets; where partitions begin and end
    describe.py     what the preflight asks
    leaders.py open_transactions.py         ask many leaders at once; whose transaction holds a partition
    collector.py    from tasks to the driver: what reading took
    deferred.py     kafka-python's protocol classes without its clients

What is not obvious:
- In TV2 the broker adds a partition to the transaction while it handles the first Produce; right after an EndTxn it
  waits 20 ms inside that request for the markers of the transaction before.
- EndTxn is answered before the markers are written: data becomes visible a moment later.
- InitProducerId with an outdated identity aborts the newer owner's open transaction before it answers "fenced".
"""

from spark_kafka_eos.broker.deferred import defer, in_spark_process

if in_spark_process():
    for _package in ("kafka", "kafka.protocol.consumer", "kafka.protocol.producer"):
        defer(_package)
