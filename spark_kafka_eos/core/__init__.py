"""Pure decision functions: no sockets, no Spark, no clock. All input is passed in as values.

commit     transaction barrier append_mode staging_space sequences send_plan
read       planning replay task_split byte_limit fetch_plan fetch_cursor fetch_steps fetch_sizes visibility lag
           metadata progress
watch      outcome lateness metrics query_metrics
rows       partitioner murmur2 dead_letters dead_letter_headers
kafka      error_codes acl_hints backoff log_pace trace
preflight  checks before the first batch; abilities, services and releases of brokers; message_formats of topics
operator   transactions: what is open, and who ends it; abort: whether one may
           be aborted
words      spans: durations for people; listing: the first of many names
"""
