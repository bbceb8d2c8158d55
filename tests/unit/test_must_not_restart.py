"""A query that another driver has taken over is told from every other failure, however Spark wraps the error."""

import pytest

from spark_kafka_eos import AttemptsExhausted, LedgerRefused, ProducerFenced, TransactionAborted, must_not_restart

TRACEBACK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: An exception was raised by the
Python Proxy. Return Message: Traceback (most recent call last):
  File "/app/spark_kafka_eos/transaction/shared.py", line 162, in commit
    raise self._fenced(error)
{last}
"""


def wrapped(last: str) -> RuntimeError:
    """As Spark raises what happened in its other process: by its text."""
    return RuntimeError(TRACEBACK.format(last=last))


@pytest.mark.parametrize(
    "error",
    [
        ProducerFenced("transactional.id 'orders' now belongs to producer 7, epoch 3"),
        LedgerRefused("the ledger is ahead of the checkpoint"),
        wrapped("spark_kafka_eos.errors.ProducerFenced: transactional.id 'orders' now belongs to producer 7, epoch 3."),
        wrapped("spark_kafka_eos.errors.LedgerRefused: the ledger is ahead of the checkpoint."),
        wrapped("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 4."),
    ],
)
def test_a_query_that_another_driver_has_taken_over_must_not_be_restarted(error: Exception) -> None:
    assert must_not_restart(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("out of memory"),
        TransactionAborted("an executor was lost"),
        AttemptsExhausted("batch 4 was aborted 3 times, the last time because ProducerFenced"),
        wrapped("spark_kafka_eos.errors.BrokerUnreachable: no broker answered."),
        wrapped(
            "spark_kafka_eos.errors.ProducerFenced: epoch 3 is fenced.\n\nThe above exception was the direct cause:\n"
            "spark_kafka_eos.errors.TransactionAborted: the coordinator aborted the transaction.\n\n"
            "spark_kafka_eos.errors.AttemptsExhausted: batch 4 was aborted 3 times."
        ),
    ],
)
def test_any_other_failure_may_be_restarted_also_if_a_cause_of_it_names_the_fence(error: Exception) -> None:
    assert not must_not_restart(error)
