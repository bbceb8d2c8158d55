"""Real time: a query's records are read, transformed and committed within milliseconds, in tasks that run for minutes.

    buckets.py   which partitions of the source go together, and under which transactional id
    cycle.py     one bucket's transactions: append, offsets, commit
    task.py      what a task does until its time is over
    intervals.py what a task did in the last seconds, for log and metrics
    driver.py    gives each bucket an epoch and a start, and proves that the query is still this driver's

A transaction is that of one bucket, not of the whole micro-batch as elsewhere: no two processes share it, so nobody
waits for a barrier. It has a record in the ledger that says where its partitions are read on; the entry of the query
says how many buckets there are.
"""
