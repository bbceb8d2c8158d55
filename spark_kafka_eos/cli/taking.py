"""Taking a transactional.id at an operator's word: from the owner that was shown, and from nobody who came later."""

from __future__ import annotations

import time

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.protocol import describe
from spark_kafka_eos.protocol.cluster import Cluster
from spark_kafka_eos.protocol.facts import TransactionFacts, Unread
from spark_kafka_eos.protocol.transactions import TransactionCoordinator
from spark_kafka_eos.transaction.ownership import Owner, is_left_by_take


def take(cluster: Cluster, transactional_id: str, timeout_ms: int, *, shown: TransactionFacts | Unread | None) -> None:
    """Send InitProducerId, which fences the owner that was `shown`, and aborts its transaction.

    Raises ToolFailed if another producer has the id by then. A request without an answer is not sent again once the id
    is another one's: that may be this request's own doing, or a driver that has started.
    """

    def require_only_ours(*, sent: bool) -> None:
        now = describe.transaction(cluster, transactional_id, now_ms=int(time.time() * 1e3))
        if isinstance(shown, Unread) or not isinstance(now, TransactionFacts):
            return
        if is_left_by_take(Owner.of(shown), now, in_doubt=False):
            return
        owner = f"producer {now.producer_id}, epoch {now.epoch} ({now.state})"
        whose = f"transactional id {transactional_id!r} now belongs to {owner}"
        look = f"See who has it: kafka-eos transactions describe {transactional_id}"
        if sent:
            raise ToolFailed(
                f"InitProducerId was not answered, and {whose}, by this command or by a driver that started",
                action=f"What was open before is aborted; nothing more was sent. {look}",
            )
        raise ToolFailed(f"{whose}, and not to the owner that was found", action=f"Nothing was changed. {look}")

    require_only_ours(sent=False)
    coordinator = TransactionCoordinator(cluster, transactional_id, timeout_ms)
    coordinator.init_producer_id(again=lambda: require_only_ours(sent=True))
