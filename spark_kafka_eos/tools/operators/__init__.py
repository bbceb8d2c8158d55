"""What operators ask of a cluster, without any query's help: its queries, its open transactions, and their abort.

queries status unread                   the queries, by their ledgers, and how far they are behind
open_transactions survey                what coordinators and leaders have open, and who will end it
outputs                                 what is open in the topics that a query writes
before_start                            what the preflight checks, and what hangs in these topics
abort                                   whether one may be aborted
settle                                  whether a batch that a table has can be settled in Kafka
ending                                  carries both out
cluster_watch cluster_metrics           the same again and again, as metrics for the exporter
"""
