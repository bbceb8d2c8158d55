"""Appending: rows -> blocks -> record batches in Kafka's logs, in a transaction that others begin and end.

blocks                                  encode rows as complete record batches, one partition each
encode_settings                         how they are encoded, and for which topics
staging staging_space files temporary   pass blocks from tasks to the driver
append append_task append_mode          append blocks, on the driver or in tasks of the executors
barrier                                 decides whether everything was appended exactly once
formats                                 topics whose message format has no room for a producer id
report                                  what each step reports to the next one
"""
