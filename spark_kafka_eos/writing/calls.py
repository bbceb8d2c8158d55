"""Who writes under a transactional.id in this process: one call at a time, and one for each micro-batch.

The ledger tells whether a batch is committed, not by whom. So a second call for a batch, which brings further frames,
looks to it like the batch come again after a crash: skipped, while the query succeeds. What tells them apart is this
memory: a batch that comes again does so in another run of its query.

| the call before, for the same batch in the same run | a second one |
|---|---|
| failed, and nothing was committed | goes on |
| committed the batch, or found it committed | is refused: its frames can't be added any more |
| failed, and nobody knows whether the batch was committed | is refused: the ledger tells when the query starts again |
| is under way, in another thread | is refused, as any other call is meanwhile |
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
    "This call's frames are not written. Collect all frames of a batch in ONE "
    "`with writer.transaction(batch_df, batch_id)` block."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call for one micro-batch; `run_id` is None where a process lives for one run of one query."""

    run_id: str | None
    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(slots=True)
class Attempt:
    """A call that is under way; `committing` from when a commit may have been sent."""

    committing: bool = False

    def may_have_committed(self, error: BaseException) -> bool:
        """Whether the batch may be committed although the call ends in this error."""
        return error.committed != "nothing" if isinstance(error, KafkaEosError) else self.committing


class Calls:
    """The calls under one transactional.id. With `repeatable` a batch may be written several times."""

    def __init__(self, *, repeatable: bool) -> None:
        self._repeatable = repeatable
        self._lock = threading.Lock()
        self._under_way: Call | None = None
        self._last: tuple[Call, Committed] | None = None

    @contextmanager
    def enter(self, call: Call, *, incomplete: Callable[[Committed], None]) -> Iterator[Attempt]:
        """Let this call in, or raise IllegalTransactionState; how the block ends is remembered.

        `incomplete` is called before a call is refused for a batch that is ("everything") or may be ("unknown")
        committed without its frames for good.
        """
        try:
            self._admit(call)
        except IllegalTransactionState as error:
            if error.committed != "nothing" and not self._repeatable:
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
                raise _second(call, "is still under way", _UNKNOWN, _COLLECT)
            if self._under_way is not None:
                raise IllegalTransactionState(
                    f"{call} was to be written while a call for {self._under_way} is under way in this process, under "
                    "the same transactional.id",
                    action="Give each query its own `kafka.transactional.id`, and let a batch end before the next one.",
                )
            if self._last is not None and self._last[0] == call and not self._repeatable:
                if self._last[1] == _EVERYTHING:
                    raise _second(call, "has settled it", _EVERYTHING, f"It holds the first call's frames. {_COLLECT}")
                raise _second(call, "failed", _UNKNOWN, f"Let the first call's error end the query. {_COLLECT}")
            self._under_way = call


def _second(call: Call, first: str, committed: Committed, action: str) -> IllegalTransactionState:
    return IllegalTransactionState(
        f"a second call for {call} in the same run: the first one {first}", committed=committed, action=action
    )


def calls_of(options: SinkOptions) -> Calls:
    """This process's calls under the transactional.id that the options name, whoever makes them."""
    if options.delivery_guarantee == "at-least-once":
        return Calls(repeatable=True)  # nothing is shared but the writer itself
    return _calls(frozenset(options.client.bootstrap_servers), options.transactional_id)


@functools.cache
def _calls(servers: frozenset[tuple[str, int]], transactional_id: str) -> Calls:  # noqa: ARG001 - the cache's key
    return Calls(repeatable=False)
