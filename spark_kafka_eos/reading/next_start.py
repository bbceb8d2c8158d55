"""Where the next micro-batch starts on Spark 4.0 and 4.1, which do not tell it to `latestOffset()`. Pure.

They show it before, in every case (MicroBatchExecution, PythonMicroBatchStream of 4.0.5 and 4.1.4):

| Spark calls                                                              | the next micro-batch starts       |
|--------------------------------------------------------------------------|-----------------------------------|
| `latestOffset()` before anything else: the query has no checkpoint        | where the options say: UNRESOLVED |
| `partitions(L, L)` first, at each restart; the checkpoint's last end is L | at L                              |
| then `partitions(S, L)`, if that batch was not committed: it runs again   | at L, once it has                 |
| `latestOffset()` -> E                                                     | at E                              |

The last holds whether Spark runs a batch or not: an E other than the start is in the checkpoint before Spark asks
again, or the query has failed. `partitions(S, E)` follows, but not if Spark knows that no row passes a filter.

One setting has another order, `spark.sql.streaming.triggerAvailableNowWrapper.enabled`, which is internal and off by
default: at a restart, too, Spark first asks for the end. That looks like a new query, and a limit would be counted from
the query's first offset. Ends that were planned for a new query say so (`SourceOffset.start`), so this is noticed
before Spark records the end.
"""

from __future__ import annotations

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.source_offset import UNRESOLVED, JsonOffsets, SourceOffset


class NextMicroBatch:
    """Follows Spark's calls in one process of a query. `start` is where the next micro-batch starts."""

    def __init__(self) -> None:
        self.start: JsonOffsets = {name: dict(partitions) for name, partitions in UNRESOLVED.items()}

    def planned(self, end: JsonOffsets) -> None:
        """`latestOffset()` has returned `end`."""
        self.start = end

    def runs(self, start: JsonOffsets, end: JsonOffsets) -> None:
        """Spark has called `partitions(start, end)`.

        Raises ConfigurationError if the query is past an end that was planned as that of its first batch.
        """
        for planned in (self.start, end):
            if _is_past(start, planned):
                raise ConfigurationError(
                    "spark.sql.streaming.triggerAvailableNowWrapper.enabled",
                    "this Spark has asked where a micro-batch ends before it showed where the query is, so the end "
                    "that was planned comes before the start. Nothing was read",
                    action="Set it to false, or remove the options that limit a micro-batch. If the checkpoint has a "
                    "last file offsets/<n> without commits/<n>, delete it.",
                )
        self.start = end


def _is_past(start: JsonOffsets, end: JsonOffsets) -> bool:
    """Whether `end` was planned for a new query, and the query is past it in some partition."""
    if start == UNRESOLVED or (planned := SourceOffset.from_json(end)).start is None:
        return False
    return any(planned.offsets.get(tp, at) < at for tp, at in SourceOffset.from_json(start).offsets.items())
