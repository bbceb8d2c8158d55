"""Where modules went: an import by an earlier path says the new one, instead of that there is no such module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = __name__.partition(".")[0]
_PLACES = {
    **{name: f"kafka.{name}" for name in ("auth", "fetching", "logs", "protocol", "wire", "words")},
    **{name: f"tools.{name}" for name in ("cli", "doctor", "operators", "replay", "verify")},
    **{
        f"appending.{name}": f"kafka.producing.{name}"
        for name in ("murmur2", "partitioner", "produce", "producer_ids", "send_plan", "sequences")
    },
    **{f"spark.{name}": f"tools.listener.{name}" for name in ("follow", "lineage", "progress")},
    "demo": "testing.demo",
    "model": "micro_batch, source_offset, kafka.partitions, kafka.producer and kafka.wire.batch_header",
    "reading.positions": "reading.offset_planner",
    "reading.replayed": "reading.ledger_replay",
    "reading.same_records": "reading.topic_identity",
    "reading.stops": "reading.batch_boundaries",
    "spark.planned_here": "spark.plan_registry",
    "spark.prompt_input": "startup.quickack",
    "transaction.ownership": "transaction.hold",
    "transaction.states": "transaction.attempt",
}


class _Moved(MetaPathFinder):
    """Is asked last, so only for what is not there."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the signature of a finder
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package == _PACKAGE and (place := _PLACES.get(module)) is not None:
            message = f"{fullname} has moved to {_PACKAGE}.{place}. What users need is in {_PACKAGE} itself, as before."
            raise ModuleNotFoundError(message, name=fullname)
        return None


def say_where_modules_went() -> None:
    """For imports of this process. Source: importlib's `MetaPathFinder`, PEP 451."""
    sys.meta_path.append(_Moved())
