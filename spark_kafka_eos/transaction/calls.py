"""Allows one call at a time per transactional.id in this process, and one call per micro-batch.

The ledger knows which run of the query has committed a batch, so it recognises a second call after the first one's
commit, wherever it comes from: another thread, writer or process, or another address of the same cluster. This module
knows what the ledger cannot: which calls are running, and which have failed; `begun` remembers
which batches have not ended in a commit.

| the previous call for the same batch in the same run | the second call |
|---|---|
| failed, and nothing was committed | is allowed |
| committed the batch, or found it committed | is refused: its rows can no longer be added |
| failed, and it is unknown whether the batch was committed | is refused: the ledger settles this at the next start |
| is still running, in another thread | is refused, and the first one does not commit: its batch would lack these rows |
| is just committing, in another thread | waits, and is then like one that comes later |

While it is noted in the ledger that a refused call's rows are missing, every other call waits: it would use the same
transaction. A replay belongs to another run of the query, and is allowed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from spark_kafka_eos.errors import Committed, IllegalTransactionState, KafkaEosError
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.transaction.shared import WRITE_ONCE

_EVERYTHING: Committed = "everything"
_UNKNOWN: Committed = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterCall:
    """A call for one micro-batch. `run_id` is None if it is unknown which run of the query makes it."""

    run_id: str | None
    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(slots=True)
class Attempt:
    """A running call. `committing` is set once a commit may have been sent. `refused`: the call is not let in, and only
    runs to note that its batch is incomplete.
    """

    call: WriterCall
    lock: threading.Condition
    committing: bool = False
    contested: bool = field(default=False)
    refused: IllegalTransactionState | None = None

    def appending(self) -> None:
        """Nothing of this attempt is committed."""
        with self.lock:
            self.committing = False

    def commit_begins(self) -> None:
        """Raises IllegalTransactionState if a second call for the batch was refused meanwhile."""
        with self.lock:
            if self.contested:
                raise IllegalTransactionState(
                    f"a second call for {self.call} was made while this one was running, so neither is committed",
                    action=WRITE_ONCE,
                )
            self.committing = True

    def may_have_committed(self, error: BaseException) -> bool:
        """Whether the batch may be committed although the call failed with `error`."""
        return error.committed != "nothing" if isinstance(error, KafkaEosError) else self.committing


class WriterCalls:
    """The calls under one transactional.id. If `repeatable`, a batch may be written several times."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._changed = threading.Condition()
        self._running: Attempt | None = None
        self._last: tuple[WriterCall, Committed] | None = None
        self._failed: WriterCall | None = None

    @contextmanager
    def enter(self, call: WriterCall, *, incomplete: Callable[[Committed], None]) -> Iterator[Attempt]:
        """Allow this call, or raise IllegalTransactionState; remember how the block ends.

        `incomplete` is called before a call is refused because its batch has been ("everything") or may have been
        ("unknown") committed without the call's DataFrames.
        """
        attempt = self._admit(call)
        if (refused := attempt.refused) is not None:
            try:
                incomplete(refused.committed or _UNKNOWN)
            finally:
                self._end()
            raise refused
        try:
            yield attempt
        except BaseException as error:
            self._leave(call, _UNKNOWN if attempt.may_have_committed(error) else None)
            raise
        else:
            self._leave(call, _EVERYTHING)

    @property
    def failed(self) -> bool:
        """Whether a call has failed since the last commit: its requests may have raised the producer's epoch."""
        return self._failed is not None or (self._last is not None and self._last[1] != _EVERYTHING)

    def _leave(self, call: WriterCall, outcome: Committed | None) -> None:
        with self._changed:
            if outcome is None:
                self._failed = call
            else:
                self._last, self._failed = (call, outcome), None
            self._end()

    def _end(self) -> None:
        with self._changed:
            self._running = None
            self._changed.notify_all()

    def _admit(self, call: WriterCall) -> Attempt:
        with self._changed:
            while self._is_about_to_end(call):
                self._changed.wait()
            if self._running is not None and self._running.call == call:
                self._running.contested = not self._repeatable
                raise _second(call, "is still running", "nothing", WRITE_ONCE)
            if self._running is not None:
                raise IllegalTransactionState(
                    f"cannot write {call}: a call for {self._running.call} is still running in this process under "
                    "the same transactional.id",
                    action="Set a different `kafka.transactional.id` for each query, and write one batch at a time.",
                )
            refused: IllegalTransactionState | None = None
            if self._last is not None and self._last[0] == call and not self._repeatable:
                if self._last[1] == _EVERYTHING:
                    refused = _second(
                        call, "completed", _EVERYTHING, f"It contains the first call's rows. {WRITE_ONCE}"
                    )
                else:
                    refused = _second(
                        call, "failed", _UNKNOWN, f"Let the first call's error stop the query. {WRITE_ONCE}"
                    )
            self._running = Attempt(call, self._changed, refused=refused)
            return self._running

    def _is_about_to_end(self, call: WriterCall) -> bool:
        """Whether there is a running call for whose end `call` waits."""
        running = self._running
        return running is not None and (running.refused is not None or (running.call == call and running.committing))


def _second(call: WriterCall, first: str, committed: Committed, action: str) -> IllegalTransactionState:
    return IllegalTransactionState(
        f"a second call for {call} in the same run: the first call {first}", committed=committed, action=action
    )


def calls_of(options: SinkOptions, cluster_id: str) -> WriterCalls:
    """This process's calls under the options' transactional.id on this cluster, from all writers and threads."""
    if options.delivery_guarantee == "at-least-once":
        return WriterCalls(repeatable=True)  # nothing is shared except the writer
    # At once, unlike a cache: of two first calls at the same time, each would be alone in its own.
    where = cluster_of(options, cluster_id), options.transactional_id
    return _calls.setdefault(where, WriterCalls(repeatable=False))


def cluster_of(options: SinkOptions, cluster_id: str) -> str:
    """What distinguishes the cluster from others: its id, or its addresses if it has none."""
    return cluster_id or ",".join(sorted(f"{host}:{port}" for host, port in options.client.bootstrap_servers))


_calls: dict[tuple[str, str], WriterCalls] = {}  # by cluster and transactional.id
