"""The table's side of a batch: what the table has, its fence, and its commit with an unknown outcome.

A failed commit of the table may still be applied. The token that is there, or a fence of our own, settles that; so also
after a conflict, which may be that of a commit which the table's own client has sent twice. Nobody commits after a
version that another driver's fence has made: it would undo that fence.

A process that holds an epoch asks the table nothing: it knows the version that it left, and the table's compare-and-set
notices everything else.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal

from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.ledger.decide import signer_of
from spark_kafka_eos.ledger.entry import LedgerEntry, UnreadableEntry
from spark_kafka_eos.ledger.verdicts import Verdict
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.participants.decide import Finish, Prepared, decide
from spark_kafka_eos.participants.failure import naming_the_table, went_back
from spark_kafka_eos.participants.participant import Conflict, Participant, TableVersion
from spark_kafka_eos.participants.token import Token, decode, encode


class TableParticipant:
    """`participant` and what it held, as of the last answer or commit: `last`. Not thread-safe."""

    def __init__(self, options: SinkOptions, participant: Participant) -> None:
        self.participant = participant
        self._transactional_id, self._signer = options.transactional_id, signer_of(options)
        self.last = TableVersion()

    def ask(self) -> TableVersion:
        """What the table has now. Raises TableFailed."""
        with naming_the_table("cannot be read"):
            return self.participant.held()

    @property
    def token(self) -> Token | None:
        """The token that the table had; None if there is none, or not of this product."""
        token = decode(self.last.token, self._signer)
        return token if isinstance(token, Token) else None

    def verdict(
        self,
        verdict: Verdict,
        batch: MicroBatch,
        transaction: Prepared,
        entry: LedgerEntry | UnreadableEntry | None,
        cluster: str,
    ) -> Verdict | Finish:
        """The `verdict` of the ledger of `cluster`, whose last `entry` this is, and of the table."""
        return decide(
            self.last.version,
            decode(self.last.token, self._signer),
            transaction,
            entry,
            batch,
            verdict,
            transactional_id=self._transactional_id,
            cluster=cluster,
        )

    def fence(self) -> None:
        """Have the table refuse every commit planned before. Raises Conflict if one came first, and TableFailed."""
        with naming_the_table("cannot be fenced"):
            self.participant.commit(None, self.last.token, after=self.last.version)
        self.last = TableVersion(version=self.last.version + 1, token=self.last.token)

    def require_kept(self) -> None:
        """Raise TableFailed if the table has lost what it had, or cannot be read."""
        with naming_the_table("cannot be read"):
            self._require_kept(self.participant.held())

    def _require_kept(self, now: TableVersion) -> None:
        if now.version < self.last.version:  # no driver takes a commit back
            raise went_back(self.last.version, now.version)

    def commit(self, rows: Any, token: Token) -> None:
        """Commit the rows and the token. After any error, the table may have them: see `outcome`."""
        self.participant.commit(rows, encode(token, self._signer), after=self.last.version)

    def committed(self, token: Token) -> None:
        """The table has the token, whatever came after it: another driver's fence makes our next commit conflict."""
        self.last = TableVersion(version=self.last.version + 1, token=encode(token, self._signer))

    def outcome(self, token: Token) -> Literal["committed", "fenced", "overtaken"]:
        """What became of a commit of `token`: it is in the table; or it never will be, because of our own fence, or
        of another driver's commit. Raises TableFailed if the table has lost what it had.
        """
        for _ in range(describe.MOST_LOOKS):
            now = self.participant.held()
            if now.token == encode(token, self._signer):
                return "committed"
            self._require_kept(now)
            if now.version != self.last.version:
                return "overtaken"
            with contextlib.suppress(Conflict):
                self.fence()
                return "fenced"
        raise Conflict(f"the table stays at version {self.last.version}, and no commit after it succeeds")
