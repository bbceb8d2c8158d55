"""Reads from Kafka without Spark: plans a source's offsets and reads ranges of offsets as Arrow batches.

positions.py        where a source starts, and where each micro-batch ends
same_records.py     whether offsets still mean the records for which they were planned
replayed.py         up to where a checkpoint that is an old copy repeats what its sink has committed
records.py          ranges of offsets -> Arrow batches
ranges.py           ranges of offsets as rows, for rows=offsetRanges
sampling.py         estimates sizes for maxBytesPerTrigger
group_offsets.py    commitOffsets: commits completed batches to a consumer group
read_stats.py       what a task read, for the progress listener
queries.py unread.py    for operators: the queries of a cluster, and how far they are behind
status.py           what Kafka knows of a query
cluster_watch.py cluster_metrics.py   the same again and again, with the transactions, for the exporter
"""
