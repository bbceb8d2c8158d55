"""A seeded simulation: runs the connector's code on a model of Kafka, in one process, with simulated time.

    coordinator  transactions          transactions: the states of one transactional.id; the requests
    partition  stored                  a log with its producer state; its bytes as readers get them
    topics  reading                    topics and their leaders; Fetch, ListOffsets and OffsetForLeaderEpoch
    offsets                            committed offsets of groups
    kafka                              a cluster of these, which answers kafka-python's requests
    chance                             the answers to the questions at which a history branches
    fibers  world                      processes that take turns; time and faults
    network  refusals  shown  owners   connections instead of `kafka.protocol.connection`, and faults in them
    query                              Spark's part: checkpoint, micro-batches, append tasks; calls the product
    threads                            fibers of one process instead of the product's threads
    real_time  real_time_history       a query in real time: tasks that outlive drivers; its history, with micro-batches
    conditions  expiry                 kinds of clusters; a week in which brokers forget
    history  check                     one seed's history from start to end, and what must hold at its end
    bugs                               guards to remove from the product, which the seeds must detect
    record                             the steps of a history, as values, for the specification
    run                                many seeds in several processes
    exhaustive/                        all histories up to a bound instead of seeds

Not obvious:
- Everything above the sockets is the real product: `Cluster` uses the model's connections, and a clock and a sleep that
  take no time. The simulation itself decides only what Kafka, the network and Spark do.
- Tests compare the model's answers with those of real brokers, for both protocols
  (tests/broker/test_simulation_model.py, test_simulation_reading.py).
- A seed determines a whole history. `run.replay(seed)` repeats it and returns a trace.
"""
