"""Reads from Kafka without Spark: plans a source's offsets and reads ranges of offsets as Arrow batches.

offset_planner.py planning.py   where each micro-batch ends; what is read, what is lost
source_partitions.py partition_offsets.py   which partitions there are, and where they begin and end
start.py                    where a source starts
read_tasks.py task_split.py     ranges of offsets -> Spark tasks
next_start.py               where a micro-batch starts, on releases of Spark that do not say it
topic_identity.py           whether offsets still mean the records for which they were planned
by_time.py                  the first visible records at or after a time, where brokers name markers, too
stream_end.py               where the options end a stream, and what the checkpoint keeps of that
ledger_replay.py batch_boundaries.py    up to where a checkpoint that is an old copy repeats what its sink has committed
byte_limit.py sampling.py   maxBytesPerTrigger: sizes, estimated from samples
records.py columns.py       ranges of offsets -> Arrow batches of the source's columns
ranges.py                   ranges of offsets as rows, for rows=offsetRanges
group_offsets.py            commitOffsets: commits completed batches to a consumer group
read_stats.py               what a task read, for the progress listener
"""
