"""A query's Python processes start in milliseconds: what each of them does not do, or not yet.

Spark starts Python processes that plan, read, write and commit, and a query's first batch waits for each.

deferred    loads kafka-python's protocol classes without its clients: a sink's commit imports in 178 ms instead of 306
quickack    has the JVM send a task's input to its worker at once, instead of the last part 40 ms later
forked      has the processes after the first ones forked from one that has imported all of it
frozen      keeps what was imported out of Spark's garbage collection after each task, 50 ms each

In other places, for the same reason: names are imported when they are first used (`lazy.py`); one record is encoded
without NumPy (`kafka/wire/single.py`, 110 ms); `spark/sink.py` imports pandas while rows are read. PySpark is
imported with its bytecode, not from its ZIP (`../kafka_eos_python/installed_pyspark.py`); and with the command
`kafka-eos-python` the first processes are forked, too (`../kafka_eos_python`).
tests/unit/spark/test_imports_of_processes.py has the list of what each process imports.
"""
