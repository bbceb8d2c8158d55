"""What a process holds, sampled while it works, to see whether that grows."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A process after some batches; `objects` are those that Python's collector knows, 0 for another process."""

    batches: int
    rss_mib: float
    files: int
    threads: int
    objects: int


# Less than this is no growth: what an allocator and caches keep, and a connection or thread that is in use just then.
_NOISE = {"rss_mib": 8, "files": 1, "threads": 1, "objects": 200}


def measure(batches: int, pid: int | None = None) -> Sample:
    """This process, or the one with this id."""
    gc.collect()
    process = psutil.Process(pid)
    with process.oneshot():
        return Sample(
            batches=batches,
            rss_mib=round(process.memory_info().rss / 2**20, 1),
            files=process.num_fds(),
            threads=process.num_threads(),
            objects=len(gc.get_objects()) if process.pid == os.getpid() else 0,
        )


def grown(samples: Sequence[Sample]) -> list[str]:
    """What the last sample has more of than the first, noise apart."""
    first, last = samples[0], samples[-1]
    return [name for name, noise in _NOISE.items() if getattr(last, name) > getattr(first, name) + noise]


def table(samples: Sequence[Sample]) -> str:
    """A line for each sample."""
    rows = [[field.name for field in fields(Sample)], *map(astuple, samples)]
    return "\n".join("".join(f"{figure:>10}" for figure in row) for row in rows)
