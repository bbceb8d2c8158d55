"""Topics that no record may be sent to, because others write them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

INTERNAL = "is one of Kafka's internal topics"
OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"

# For where no broker is asked; a broker says which ones are internal.
_INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state", "__cluster_metadata"})


@dataclass(frozen=True, slots=True)
class ReservedTopics:
    """Kafka's internal topics and those in `reasons`: why nothing may be sent there, by name.

    `by_id` is one of them, "" for none, that is looked up before anything is sent, to know it by its topic id, too.
    """

    reasons: Mapping[str, str] = field(default_factory=dict)
    by_id: str = ""

    def reason(self, topic: str) -> str | None:
        """Why nothing may be sent to the topic of this name; None if that is not known of the name."""
        return INTERNAL if topic in _INTERNAL_TOPICS else self.reasons.get(topic)
