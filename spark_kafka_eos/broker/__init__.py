"""Communication with brokers. Besides the tools, only this package opens sockets.

    connection.py frames.py authentication.py oauth.py versions.py   one connection: frames, TLS, SASL, API versions
    cluster.py      leaders, coordinators, connections, and requests with retries
    retry.py        the retry loop, driven by `core.error_codes`
    transactions.py groups.py       coordinators of a transactional.id and of a consumer group
    produce.py      appends record batches in sequence order
    fetch.py fetch_response.py offsets.py   read offset ranges; earliest and latest offsets
    epochs.py       where the log of a leader epoch ends
    describe.py     reads the facts for the preflight
    leaders.py                              requests to many leaders
    open_transactions.py transaction_markers.py   what coordinators and leaders have open; the abort of what hangs
    datagrams.py    sends statistics of tasks and commits to the driver
    endpoint.py     serves metrics to Prometheus
    recorder.py     records a batch's requests
    deferred.py     loads kafka-python's protocol classes without its clients

Not obvious:
- In TV2, the broker adds a partition to the transaction while it handles the first Produce; right after an EndTxn, it
  waits 20 ms in that request for the markers of the previous transaction.
- EndTxn is answered before the markers are written, so records become visible a moment later.
- InitProducerId with an outdated producer epoch aborts the newer producer's open transaction before it returns
"fenced".
"""

from spark_kafka_eos.broker.deferred import defer, in_spark_process

if in_spark_process():
    for _package in ("kafka", "kafka.protocol.admin", "kafka.protocol.consumer", "kafka.protocol.producer"):
        defer(_package)
