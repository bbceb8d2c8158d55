"""For each requirement of docs/kip-98.md the code without it: a guard taken out, a value changed, a step left out.

A mutant is an edit of one module, made in a copy of the package, so that it is in all the processes that a test starts.
`tests/requirements` runs a row's tests on its mutant: one of them must fail. The key is how the row begins. What is
replaced occurs exactly once in the module, so a mutant does not outlive the code that it changes.
(`tests/seeded_bugs.py` has the bugs that the simulation must find; these stay in one process.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Mutant(NamedTuple):
    """`module` as the page names it, without `spark_kafka_eos`; `old` is replaced by `new`."""

    module: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """In the package's folder."""
        return f"{self.module.replace('.', '/')}.py"

    def of(self, source: str) -> str:
        """The module's source with this change."""
        assert source.count(self.old) == 1, f"{self.old!r} occurs {source.count(self.old)} times in {self.module}"
        return source.replace(self.old, self.new)


_CODES = "kafka.protocol.error_codes"
_COORDINATOR = "kafka.protocol.transactions"

MUTANTS: Mapping[str, Mutant] = {
    # -- idempotent producers
    "Each producer gets its own producer id": Mutant(
        "kafka.producing.producer_ids", "identity = _of(cluster).pop()", "identity = _of(cluster)[-1]"
    ),
    "Sequence numbers start at 0": Mutant("kafka.producing.sequences", "_MASK = 0x7FFF_FFFF", "_MASK = 0xFFFF_FFFF"),
    "A duplicate counts as a success": Mutant(
        "kafka.producing.send_plan",
        "(answer.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.sent > 1)",
        "(answer.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER)",
    ),
    "A gap in the sequence is fatal": Mutant(
        "kafka.producing.send_plan",
        "== ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and queue.is_behind_another(batch)",
        "== ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER",
    ),
    "Retries neither lose, repeat nor reorder": Mutant(
        "kafka.producing.send_plan",
        "if self.without_producer_id or not self.acknowledged:",
        "if self.without_producer_id:",
    ),
    "A leader remembers five batches": Mutant(
        "kafka.producing.send_plan",
        "return self.waiting[0].number < oldest.number + max_in_flight",
        "return oldest.number >= 0 and len(self.in_flight) < max_in_flight",
    ),
    "Without transactions, idempotence holds": Mutant(
        "transaction.idempotent",
        'self._identity = PLAIN if self._degree == "off" else self._producer_id()',
        'self._identity = self._identity or (PLAIN if self._degree == "off" else self._producer_id())',
    ),
    "`acks=all`, retries, few requests in flight": Mutant(
        "options.table", 'p.only("all", "-1", why="a transaction needs all in-sync replicas")', "p.text"
    ),
    "Idempotence can be turned off": Mutant(
        "options.sink_parser", 'if values.get("enable_idempotence", "required") != "required":', "if False:"
    ),
    # -- transactions
    "All partitions of a transaction become visible": Mutant(_COORDINATOR, "committed=commit,", "committed=True,"),
    "Consumed offsets are committed with the transaction": Mutant(
        "kafka.protocol.groups",
        'newest = transactional("TxnOffsetCommit", transaction_version)\n',
        'newest = transactional("TxnOffsetCommit", transaction_version)\n        return self.commit_offsets(offsets)\n',
    ),
    "Transactions need a `transactional.id`": Mutant(
        "options.sink_parser", 'if "transactional_id" not in values:', "if False:"
    ),
    "One active producer for each transactional id": Mutant(
        _CODES, ".PRODUCER_FENCED: Reaction.FENCED,", ".PRODUCER_FENCED: Reaction.ABORT,"
    ),
    "A new session begins after the transaction of the last one": Mutant(
        "transaction.shared",
        "return self.takeover.take(batch, lambda: self.look(batch))",
        'self.owner.initialise()\n        return verdicts.Write(reason="every write is new")',
    ),
    "Consume, transform, produce counts only if": Mutant(
        "ledger.verdicts",
        'return Skip(reason=f"batch {batch.batch_id} with exactly',
        'return Write(reason=f"batch {batch.batch_id} with exactly',
    ),
    "Nothing transactional before the initialisation": Mutant(
        "transaction.attempt",
        "(State.READY, Event.APPEND): State.APPENDING,",
        "(State.READY, Event.APPEND): State.APPENDING,\n    (State.UNINITIALISED, Event.APPEND): State.APPENDING,",
    ),
    "The coordinator gets the transaction's timeout": Mutant(
        "preflight.checks", "if timeout > largest:", "if timeout > 2 * largest:"
    ),
    "A transaction that timed out cannot be committed": Mutant(
        "transaction.doubt",
        "self.doubt(batch, entry, owner.timed_out(error) if is_over else error, is_over=is_over)",
        "if is_over:\n            return self._steps.committed(entry, self._steps.identity)\n        "
        "self.doubt(batch, entry, error, is_over=is_over)",
    ),
    "An id that was idle for long continues": Mutant(
        _CODES, "INVALID_PRODUCER_ID_MAPPING: Reaction.ABORT,", "INVALID_PRODUCER_ID_MAPPING: Reaction.FATAL,"
    ),
    # -- requests
    "1. Any broker names the coordinator": Mutant(
        "kafka.protocol.cluster", "if react is Reaction.FIND_COORDINATOR:", "if react is Reaction.NONE:"
    ),
    "2. InitProducerId goes to the coordinator": Mutant(
        _COORDINATOR, "producer_id=previous.producer_id if previous else -1,", "producer_id=-1,"
    ),
    "3. A transaction begins without a request": Mutant(
        _COORDINATOR,
        "nothing_open = not commit and response.error_code == ErrorCode.INVALID_TXN_STATE",
        "nothing_open = False",
    ),
    "4.1 AddPartitionsToTxn": Mutant(
        _COORDINATOR, "if identity.transaction_version >= 2 or not by_topic or", "if True or"
    ),
    "4.2 Produce names the transactional id": Mutant(
        "kafka.wire.record_batch",
        "attributes = attributes | TRANSACTIONAL if transactional",
        "attributes = attributes if transactional",
    ),
    "4.3 AddOffsetsToTxn": Mutant(
        _COORDINATOR, "if identity.transaction_version >= 2:\n        return", "if True:\n        return"
    ),
    "4.4 TxnOffsetCommit": Mutant(
        "kafka.protocol.groups",
        'call_coordinator("group", self.group_id, request, errors, newest=newest, again=again)',
        'call_coordinator("transaction", identity.transactional_id, request, errors, newest=newest, again=again)',
    ),
    "5.1 EndTxn commits or aborts": Mutant(
        _COORDINATOR,
        "lost = True\n",
        'lost = True\n        raise CommitOutcomeUnknown("it is not sent again")\n',
    ),
    "5.2 The next transaction waits": Mutant(
        _CODES, "_TRANSACTIONS: Reaction.RETRY_SOON", "_TRANSACTIONS: Reaction.RETRY_SAME"
    ),
    "Each error code has its reaction": Mutant(_CODES, "_PRODUCER_ID: Reaction.ABORT", "_PRODUCER_ID: Reaction.FATAL"),
    # -- consumers
    "`isolation.level` is a choice": Mutant(
        "options.source", '"read_uncommitted"] = "read_committed"', '"read_uncommitted"] = "read_uncommitted"'
    ),
    "`read_committed` ends at the last stable offset": Mutant(
        "kafka.protocol.offsets",
        "_bounds(cluster, partitions, _LATEST, isolation_level)",
        '_bounds(cluster, partitions, _LATEST, "read_uncommitted")',
    ),
    "Aborted records are left out": Mutant(
        "kafka.fetching.visibility", "np.append(markers + 1, len(rows))", "np.append(markers + 1, 0)"
    ),
    "Records outside of transactions are visible": Mutant(
        "kafka.fetching.visibility",
        'np.flatnonzero(headers["attributes"] & (TRANSACTIONAL | CONTROL))',
        "np.arange(len(headers))",
    ),
    "Control messages reach no application": Mutant(
        "kafka.fetching.visibility",
        "is_visible: NDArray[np.bool_] = ~control",
        "is_visible: NDArray[np.bool_] = np.ones_like(control)",
    ),
    # -- message format
    "Every field of header and records has its place": Mutant(
        "kafka.wire.encode",
        "key_length, value_length = lengths(keys), lengths(values)",
        "key_length, value_length = np.maximum(lengths(keys), 0), lengths(values)",
    ),
    "The CRC is CRC-32C, from the attributes on": Mutant("kafka.wire.record_batch", "CRC_START = 21", "CRC_START = 16"),
    "Only whole record batches are compressed": Mutant("kafka.wire.encode", "codec | attributes,", "attributes,"),
    "The type of the timestamps": Mutant(
        "kafka.wire.decode", "common = by_broker & (attributes & OWN_TIMESTAMPS == 0)", "common = by_broker & False"
    ),
    "A record batch can be read in pieces": Mutant(
        "kafka.wire.decode", "remaining, position = remaining - most, behind", "remaining = remaining - most"
    ),
    "The maximum message size limits": Mutant(
        "kafka.protocol.describe", "None if largest is None else int(largest)", "None"
    ),
    # -- upgrades and operation
    "Topics are upgraded while older formats": Mutant(
        "kafka.wire.legacy", "out += data[some.at[0] : some.end[-1]].data\n", "pass\n"
    ),
    "Clients use transactions only after": Mutant(
        "preflight.message_formats",
        "_WITH_PRODUCER_IDS, _WITH_ONE_FORMAT = (0, 11), (3, 0)",
        "_WITH_PRODUCER_IDS, _WITH_ONE_FORMAT = (0, 9), (3, 0)",
    ),
    "A topic in an old format refuses": Mutant(
        _CODES, '"TxnOffsetCommit", ErrorCode.UNSUPPORTED_FOR_', '"OffsetCommit", ErrorCode.UNSUPPORTED_FOR_'
    ),
    "Old clients go on reading": Mutant(
        "kafka.wire.legacy", 'timestamp[own["magic"] == 0] = _NO_TIMESTAMP', 'timestamp[own["magic"] == 0] = 0'
    ),
    "Metrics: live producer ids": Mutant(
        "tools.operators.survey", "open_transactions=len(open_in(remembered))", "open_transactions=len(remembered)"
    ),
    "The guarantees hold when producers": Mutant(
        "transaction.commit",
        "options, cluster, decide, participant=participant",
        "options, cluster, None, participant=participant",
    ),
    # -- the proposals around it
    "KIP-360: after UNKNOWN_PRODUCER_ID": Mutant(
        _CODES, "_PRODUCER_ID: Reaction.ABORT,", "_PRODUCER_ID: Reaction.FENCED,"
    ),
    "KIP-360: without a transactional id": Mutant(
        "kafka.producing.sequences", "replace(identity, epoch=identity.epoch + 1)", "identity"
    ),
    "KIP-360: after the last epoch": Mutant(
        "kafka.producing.producer_ids",
        "return next_epoch(identity) or idempotent_identity(cluster)",
        "return next_epoch(identity) or identity",
    ),
    "KIP-447: offsets that an open transaction": Mutant(
        "kafka.protocol.groups", "topics=topics, require_stable=require_stable", "topics=topics, require_stable=False"
    ),
    "Each transaction has its own epoch": Mutant(
        _COORDINATOR, "if response.error_code or identity.transaction_version < 2:", "if True:"
    ),
    "Versions of requests tell": Mutant("kafka.protocol.versions", '"EndTxn": 4}', '"EndTxn": 5}'),
    "In a transaction of the new protocol": Mutant(
        _COORDINATOR, "if identity.transaction_version >= 2 or not by_topic or", "if not by_topic or"
    ),
    "TRANSACTION_ABORTABLE": Mutant(_CODES, "_ABORTABLE: Reaction.ABORT,", "_ABORTABLE: Reaction.FATAL,"),
    "A late request is not taken": Mutant(
        "transaction.fence", "return transaction_version < 2 and not self._verified()", "return False"
    ),
    "A transaction declares its topics": Mutant(
        "appending.blocks",
        "if (refused := self._undeclared(topic, numbers)).any():",
        "if (refused := self._undeclared(topic, numbers) & False).any():",
    ),
    "What is known beforehand": Mutant(
        "appending.encode_settings", "return [tp for output in declared for tp in output.named()]", "return []"
    ),
    "One request registers all": Mutant(
        _COORDINATOR,
        "    _call(cluster, identity.transactional_id, request, errors, again=again)\n",
        "    if len(requested) > 1:\n        return [add_partitions(cluster, identity, [tp]) for tp in requested][0]\n"
        "    _call(cluster, identity.transactional_id, request, errors, again=again)\n",
    ),
    "A transaction that comes too early": Mutant(
        _CODES, "_TRANSACTIONS: Reaction.RETRY_SOON", "_TRANSACTIONS: Reaction.FATAL"
    ),
    "In a compressed message of format 1": Mutant(
        "kafka.wire.legacy",
        "np.where(wraps & (magic == 1), outer_offset - offset[last], 0)",
        "np.where(wraps & (magic == 1), 0, 0)",
    ),
    "In one of format 0": Mutant(
        "kafka.wire.legacy",
        "np.where(wraps & (magic == 1), outer_offset - offset[last], 0)",
        "np.where(wraps, outer_offset - np.diff(last, prepend=-1) + 1, 0)",
    ),
    "Compaction leaves holes": Mutant(
        "kafka.wire.legacy", "outer_offset - offset[last], 0)", "outer_offset - np.diff(last, prepend=-1) + 1, 0)"
    ),
    "A wrapper's LogAppendTime": Mutant(
        "kafka.wire.legacy",
        """np.where(by_broker[entry], entries.field["timestamp"][entry], own["timestamp"])""",
        """own["timestamp"]""",
    ),
    "The broker sets one base offset": Mutant(
        "kafka.wire.decode", """offset += per_record(batches["base_offset"])""", """offset += 0"""
    ),
}
