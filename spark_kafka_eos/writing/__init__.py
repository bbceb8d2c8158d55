"""Writes micro-batches without Spark: encodes rows as blocks and commits them in one shared transaction.

blocks layout              encode rows as complete record batches, one partition each
dead_letters               the rows that become dead letters instead
staging files              pass blocks from tasks to the driver
append                     append blocks, in driver and in executors mode
transaction fence          begin, commit or abort the shared transaction; fence stragglers
commit idempotent          write one micro-batch, for each delivery guarantee
calls                      allow one call per micro-batch
checkpoint offset_log      read a micro-batch from Spark's checkpoint
preflight probe            checks before the first batch; a scratch transaction
observers                  who hears of each batch: the log, and by options
trace_file telemetry spans links   files of timelines, OpenTelemetry
report outcome             what each step reports; how a batch ended, for the listener
"""
