"""What a driver's log says of its end, without what Spark's daemon prints because something else has ended."""

from __future__ import annotations

from spark_kafka_eos.testing.log_causes import causes

DAEMON = """\
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/daemon.py", line 233, in manager
  File "/opt/spark/python/lib/pyspark.zip/pyspark/daemon.py", line 86, in worker
BrokenPipeError: [Errno 32] Broken pipe
""".splitlines()
USERS = """\
Traceback (most recent call last):
  File "/home/me/job.py", line 3, in <module>
BrokenPipeError: [Errno 32] Broken pipe
""".splitlines()
CAUSE = "spark_kafka_eos.errors.UnknownTopic: topic 'x' does not exist."
ROUTINE = "26/11/21 14:45:18 INFO Executor: Exception handling ready"


def test_the_daemons_broken_pipe_is_not_a_cause():
    assert causes([ROUTINE, CAUSE, *DAEMON, "+- Project"]) == [CAUSE]
    assert causes([ROUTINE, *DAEMON, "+- Project"]) == ["+- Project"]


def test_the_same_error_of_the_job_itself_is_one():
    assert causes(USERS) == ["BrokenPipeError: [Errno 32] Broken pipe"]


def test_another_error_in_the_daemon_is_one():
    assert causes([*DAEMON[:-1], "MemoryError"]) == ["MemoryError"]


def test_a_log_that_ends_in_the_middle_of_a_traceback_loses_nothing():
    assert causes([*USERS[:2], *DAEMON[:-1]]) == [*USERS[:2], *DAEMON[:-1]]


def test_only_the_last_causes_are_shown():
    assert causes([f"Error {n}" for n in range(30)], most=2) == ["Error 28", "Error 29"]
