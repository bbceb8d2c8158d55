"""What a machine, its Spark and its Python workers lack: `kafka-eos doctor`.

self_report                 what a Python says of itself; its text runs in any Python
facts                       what was found, as values
pythons start spark_home folders    find in the facts what would fail, or costs time
gather executors brokers    read the facts: here, on a cluster's executors, of a Kafka cluster
"""
