"""What is done once in each of Spark's Python workers, which run one task after another."""

from __future__ import annotations

import functools
import gc


@functools.cache
def spare_the_collector() -> None:
    """Take what there is by now, imported modules above all, out of the garbage collector's sight.

    Spark's daemon collects garbage after each task, and to look through numpy, pyarrow and Kafka's protocol classes
    took some 50 ms of a core each time: more than a small task itself. What is in sight later is collected as ever.
    Source: PySpark's `daemon.manager`; Python's `gc.freeze`, which is meant for processes that were forked.
    """
    gc.freeze()
