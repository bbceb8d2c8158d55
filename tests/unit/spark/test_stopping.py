"""What Spark gets to read when a stop interrupts the writer; on Spark: tests/spark/test_stopping.py."""

from __future__ import annotations

import re
import signal
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_kafka_eos.errors import CommitOutcomeUnknown, Committed, KafkaEosError, ReplayFailed, TransactionAborted
from spark_kafka_eos.spark import stopping

# StreamExecution.PROXY_ERROR, without its recursion.
PROXY_ERROR = re.compile(
    r"py4j\.protocol\.Py4JJavaError: An error occurred while calling(?P<rest>(?:.|\n)*)java\.lang\.InterruptedException"
)
JAVA_TRACE = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.collect.\n" + "\tat org.apache\n" * 2_000


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether `query.stop()` was called; the test may change it."""
    answer = [True]
    monkeypatch.setattr(stopping, "is_stopped", lambda _: answer[0])
    return answer


def raised(
    error: BaseException, cause: BaseException | None = None, *, committed: Committed | None = "nothing"
) -> tuple[KafkaEosError, str]:
    """What leaves the context, and what py4j sends to Spark of it."""
    session: Any = None
    ours_or_not = (KafkaEosError, Py4JError, PySparkException, ValueError)
    with pytest.raises(ours_or_not) as caught, stopping.stop_recognized(session, lambda: committed):
        raise error from cause
    return caught.value, "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("error", [Py4JError(JAVA_TRACE), PySparkException("job was cancelled")])
def test_an_error_of_spark_because_of_a_stop_is_a_short_text_that_spark_takes_for_a_stop(stopped, error):
    told, text = raised(error)
    assert isinstance(told, TransactionAborted)
    assert told.committed == "nothing"
    found = PROXY_ERROR.search(text)
    assert found is not None
    assert len(text) - found.start() < 400


@pytest.mark.parametrize(
    ("committed", "kind"),
    [
        ("nothing", TransactionAborted),
        ("acknowledged", TransactionAborted),
        ("earlier", TransactionAborted),
        (None, TransactionAborted),
        ("unknown", CommitOutcomeUnknown),
    ],
)
def test_it_says_what_is_committed_as_far_as_that_is_known(stopped, committed, kind):
    told, text = raised(Py4JError(JAVA_TRACE), committed=committed)
    assert (type(told), told.committed) == (kind, committed)
    assert ("Nothing was committed" in text) == (committed == "nothing")


def test_an_error_of_ours_that_a_stop_caused_keeps_its_class_and_what_it_says_of_the_commit(stopped):
    told, text = raised(ReplayFailed("batch 3 is not computed", committed="everything"), Py4JError(JAVA_TRACE))
    assert isinstance(told, ReplayFailed)
    assert told.committed == "everything"
    assert PROXY_ERROR.search(text)
    assert JAVA_TRACE not in text


def test_an_error_that_spark_did_not_cause_stays_as_it_is_in_spite_of_a_stop(stopped):
    for error in (CommitOutcomeUnknown("EndTxn had no answer"), ValueError("the user's")):
        assert raised(error)[0] is error


def test_an_error_of_a_query_that_was_not_stopped_stays_as_it_is(stopped):
    stopped[0] = False
    error = Py4JError(JAVA_TRACE)
    told, text = raised(error)
    assert told is error
    assert JAVA_TRACE in text


class Session:
    """A session over Spark Connect, with queries that note their stop."""

    def __init__(self, *queries: Query) -> None:
        self.streams, self.active = self, queries


class Query:
    """`batches` are the last batches that it tells of, one at each look. A trigger is active."""

    def __init__(self, error: Exception | None = None, *batches: int) -> None:
        self.error, self.stops, self.batches = error, 0, [*batches]
        self.status = {"isTriggerActive": bool(batches)}

    @property
    def lastProgress(self) -> dict[str, int] | None:
        return {"batchId": self.batches.pop(0) if len(self.batches) > 1 else self.batches[-1]} if self.batches else None

    def stop(self) -> None:
        self.stops += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The signals that end the process in the end."""
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    monkeypatch.setattr(stopping, "_ANSWER_SECONDS", 0.01)
    yield signals
    signal.signal(signal.SIGTERM, before)


def test_sigterm_stops_every_query_and_is_then_handled_as_before(ended):
    session: Any = Session(Query(KafkaEosError("cannot be stopped")), Query())
    stopping.stop_on_sigterm(session)
    signal.raise_signal(signal.SIGTERM)
    assert [query.stops for query in session.active] == [1, 1]
    assert ended == [signal.SIGTERM]


def test_over_spark_connect_a_query_is_stopped_when_its_batch_has_ended(ended):
    query = Query(None, 3, 3, 3, 4)
    session: Any = Session(query)
    stopping.stop_on_sigterm(session)
    signal.raise_signal(signal.SIGTERM)
    assert (query.stops, query.batches) == (1, [4])
    assert ended == [signal.SIGTERM]


def test_over_spark_connect_a_query_whose_batch_takes_too_long_is_stopped_in_time(ended):
    query = Query(None, 3)
    session: Any = Session(query)
    stopping.stop_on_sigterm(session, seconds=0.3)
    signal.raise_signal(signal.SIGTERM)
    assert query.stops == 1


def test_a_query_that_does_not_end_in_time_does_not_keep_the_driver(ended, caplog):
    class Stuck(Query):
        def stop(self) -> None:
            threading.Event().wait()

    session: Any = Session(Stuck())
    stopping.stop_on_sigterm(session, seconds=0.05)
    signal.raise_signal(signal.SIGTERM)
    assert ended == [signal.SIGTERM]
    assert "needs longer than 0.05 s" in caplog.text
