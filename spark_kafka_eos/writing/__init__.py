"""Writing, without Spark: a micro-batch's rows become blocks, and one shared transaction commits them.

blocks layout              rows -> complete record batches, one partition each
staging files              blocks between tasks and driver
append executor_append     blocks -> brokers, in driver and in executors mode
transaction                begin, let others append, commit or abort
commit idempotent          one micro-batch from the ledger's verdict to its end, in each delivery guarantee
calls                      one call for each micro-batch
checkpoint offset_log      what Spark's checkpoint says of a micro-batch
preflight report           before the first batch; after each
"""
