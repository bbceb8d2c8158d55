"""A seeded simulation: runs the connector's code on a model of Kafka, in one process, with simulated time.

    coordinator  transactions          the model's transactions: the states of one transactional.id, the requests
    partition  stored                  a log with its producers' state; the bytes that readers get of it
    topics  reading                    topics and their leaders; what those answer to readers
    offsets                            groups
    kafka                              a cluster of them that answers the requests of kafka-python's classes
    fibers  world                      processes that take turns, time, chance, faults
    network  refusals  shown           connections in the place of `broker.connection`, and what a seed does to them
    query                              Spark's part: checkpoint, micro-batches, append tasks; calls the product
    conditions  expiry                 what kind of cluster it is; a week in which brokers forget
    history  check                     one seed from its first driver to the end, and what must hold then
    bugs                               guards to take out of the product, each of which the seeds must miss
    run                                many seeds in several processes

Not obvious:
- Everything above the sockets is the product as it is: `Cluster` takes the connections of a model, a clock and a sleep
  that cost nothing. What the simulation decides itself is what Kafka, the network and Spark do.
- The model is compared with real brokers of both protocols, answer by answer (tests/broker/test_simulation_model.py,
  test_simulation_reading.py).
- A number is a whole history. `run.replay(seed)` tells it again, line by line.
"""
