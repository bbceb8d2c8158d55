"""Threads that queries share."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import NoReturn

import pytest

from spark_kafka_eos.spark.micro_batch_writer import in_shared_thread

batch: ContextVar[int] = ContextVar("batch")


def shared() -> set[threading.Thread]:
    """The shared threads that other tests of this process may have started, too."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("kafka-eos-append")}


def test_queries_that_run_one_after_the_other_share_a_thread():
    before = shared()
    used = {in_shared_thread(threading.current_thread)() for _ in range(100)}
    assert used <= shared()
    assert len(shared() - before) <= 2, "one may still be finishing when the next one starts"


def test_queries_at_the_same_time_do_not_wait_for_each_other():
    together = threading.Barrier(100, timeout=60)
    threads = [threading.Thread(target=in_shared_thread(together.wait)) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not together.broken
    assert together.n_waiting == 0


def test_the_caller_has_the_result_and_its_context_is_there():
    batch.set(7)
    assert in_shared_thread(lambda added: batch.get() + added)(1) == 8


def test_the_caller_has_the_error():
    def fail() -> NoReturn:
        raise OSError("the disk")

    with pytest.raises(OSError, match="the disk"):
        in_shared_thread(fail)()
