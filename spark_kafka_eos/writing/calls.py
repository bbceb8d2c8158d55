"""Allows one call at a time per transactional.id in this process, and one call per micro-batch.

The ledger records that a batch is committed, not by which call. To the ledger, a second call for a batch, with other
DataFrames, looks like a replay of the batch after a crash: it would be skipped, and the query would succeed without
these rows. So this module remembers the calls of a run; a replay belongs to another run of the query.

| the previous call for the same batch in the same run | the second call |
|---|---|
| failed, and nothing was committed | is allowed |
| committed the batch, or found it committed | is refused: its rows can no longer be added |
| failed, and it is unknown whether the batch was committed | is refused: the ledger settles this at the next start |
| is still running, in another thread | is refused, like any other call at that time |
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from spark_kafka_eos.errors import Committed, IllegalTransactionState, KafkaEosError
from spark_kafka_eos.options import SinkOptions

_EVERYTHING: Committed = "everything"
_UNKNOWN: Committed = "unknown"

_COLLECT = (
    "This call's DataFrames are not written. Write all DataFrames of a batch in ONE "
    "`with writer.transaction(batch_df, batch_id)` block."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call for one micro-batch. `run_id` is None if the process runs a single run of one query."""

    run_id: str | None
    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(slots=True)
class Attempt:
    """A running call. `committing` is set once a commit may have been sent."""

    committing: bool = False

    def may_have_committed(self, error: BaseException) -> bool:
        """Whether the batch may be committed although the call failed with `error`."""
        return error.committed != "nothing" if isinstance(error, KafkaEosError) else self.committing


class Calls:
    """The calls under one transactional.id. If `repeatable`, a batch may be written several times."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._lock = threading.Lock()
        self._under_way: Call | None = None
        self._last: tuple[Call, Committed] | None = None

    @contextmanager
    def enter(self, call: Call, *, incomplete: Callable[[Committed], None]) -> Iterator[Attempt]:
        """Allow this call, or raise IllegalTransactionState; remember how the block ends.

        `incomplete` is called before a call is refused because its batch has been ("everything") or may have been
        ("unknown") committed without the call's DataFrames.
        """
        try:
            self._admit(call)
        except IllegalTransactionState as error:
            if error.committed is not None and error.committed != "nothing" and not self._repeatable:
                incomplete(error.committed)
            raise
        attempt = Attempt()
        try:
            yield attempt
        except BaseException as error:
            self._leave((call, _UNKNOWN) if attempt.may_have_committed(error) else None)
            raise
        else:
            self._leave((call, _EVERYTHING))

    def _leave(self, outcome: tuple[Call, Committed] | None) -> None:
        with self._lock:
            self._under_way, self._last = None, outcome or self._last

    def _admit(self, call: Call) -> None:
        with self._lock:
            if self._under_way == call:
                raise _second(call, "is still running", _UNKNOWN, _COLLECT)
            if self._under_way is not None:
                raise IllegalTransactionState(
                    f"cannot write {call}: a call for {self._under_way} is still running in this process under "
                    "the same transactional.id",
                    action="Set a different `kafka.transactional.id` for each query, and write one batch at a time.",
                )
            if self._last is not None and self._last[0] == call and not self._repeatable:
                if self._last[1] == _EVERYTHING:
                    raise _second(call, "completed", _EVERYTHING, f"It contains the first call's rows. {_COLLECT}")
                raise _second(call, "failed", _UNKNOWN, f"Let the first call's error stop the query. {_COLLECT}")
            self._under_way = call


def _second(call: Call, first: str, committed: Committed, action: str) -> IllegalTransactionState:
    return IllegalTransactionState(
        f"a second call for {call} in the same run: the first call {first}", committed=committed, action=action
    )


def calls_of(options: SinkOptions) -> Calls:
    """This process's calls under the options' transactional.id, from all writers and threads."""
    if options.delivery_guarantee == "at-least-once":
        return Calls(repeatable=True)  # nothing is shared except the writer
    return _calls(frozenset(options.client.bootstrap_servers), options.transactional_id)


@functools.cache
def _calls(servers: frozenset[tuple[str, int]], transactional_id: str) -> Calls:  # noqa: ARG001 - the cache's key
    return Calls(repeatable=False)
