"""Checks what must hold at the end of a history: records exactly once, in order, complete batches, nothing open, true
reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lab.simulation.kafka import ModelKafka
from lab.simulation.partition import Entry
from lab.simulation.query import OPTIONS, OUTPUT, SOURCE, Claim, Row
from lab.simulation.real_time import rows_in
from spark_kafka_eos.kafka.partitions import OffsetAndMetadata, Offsets, TopicPartition
from spark_kafka_eos.ledger import bucket_record, entry_format
from spark_kafka_eos.ledger.entry import LedgerEntry, SourceProgress

Visible = Mapping[TopicPartition, list[Entry]]

_LEDGER_AT = TopicPartition(OPTIONS.ledger_topic, 0)


def violations(kafka: ModelKafka, claims: list[Claim], records: int, *, reads: bool) -> list[str]:
    """All violations. Each partition of the source had `records` records; `reads`: a query reads them."""
    committed = ledger_of(kafka)
    elsewhere = kafka.conditions.elsewhere
    visible = {tp: kafka.partitions[tp].committed() for tp in OUTPUT}
    return [
        *_not_once(visible, dict.fromkeys(SOURCE, records)),
        *_out_of_order(visible),
        *_torn(visible, committed, reads=reads),
        *_gaps(list(committed.values())),
        *_pointers(kafka, committed),
        *(_source_offsets(kafka, committed, records, elsewhere=elsewhere) if reads else ()),
        *kafka.open(),
        *_untrue(claims, committed),
        *_miscounted(claims, visible),
    ]


def real_time_violations(kafka: ModelKafka, ends: Offsets, *, finished: bool) -> list[str]:
    """All violations of a query that ran in real time, up to these ends of the source's partitions. `finished`: the
    last tasks were not cut off after their last commit, so that the group has its copy of the offsets.
    """
    visible, ledger = _seen_in_real_time(kafka), reached(kafka)
    group = {tp: at for tp, (at, _) in kafka.group(OPTIONS.group_id).offsets.items()}
    return [
        *_not_once(visible, ends),
        *_out_of_order(visible),
        *_apart(kafka, visible),
        *_pointers(kafka, ledger_of(kafka)),
        *(f"the ledger is at {ledger.get(tp)} of {tp}" for tp, end in ends.items() if ledger.get(tp) != end),
        *(f"the group is at {at} of {tp}, beyond the ledger" for tp, at in group.items() if at > ledger.get(tp, 0)),
        # Where a group's marker was left out, its copy of the offsets is late.
        *(_group_offsets(kafka, ends) if finished and not kafka.conditions.left_out else ()),
        *kafka.open(groups=not kafka.conditions.left_out),
    ]


def _seen_in_real_time(kafka: ModelKafka) -> Visible:
    return {
        tp: [entry._replace(content=rows_in(entry.content)) for entry in kafka.partitions[tp].committed()]
        for tp in OUTPUT
    }


def rows_seen(kafka: ModelKafka) -> list[Row]:
    """The rows in the output that read_committed consumers see."""
    return [row for entries in _seen_in_real_time(kafka).values() for entry in entries for row in entry.content]


def _apart(kafka: ModelKafka, visible: Visible) -> list[str]:
    """Records and offsets that were not committed together, and offsets that went back."""
    wrong = []
    read: dict[tuple[int, int], set[Row]] = {}
    reached: dict[TopicPartition, int] = {}
    for owner, offsets, of_bucket in _ledgers_offsets(kafka):
        for tp, offset in offsets.items():
            before = reached.get(tp, 0)
            if offset < before and of_bucket:
                wrong.append(f"a bucket went back from {before} to {offset} of {tp}")
            read.setdefault(owner, set()).update(Row(tp.partition, n) for n in range(before, offset))
            reached[tp] = max(before, offset)
    return wrong + _others_than_read(_written(visible), read)


def _written(visible: Visible) -> dict[tuple[int, int], set[Row]]:
    """The rows that are visible of each producer id and epoch: of one transaction."""
    written: dict[tuple[int, int], set[Row]] = {}
    for entry in (entry for entries in visible.values() for entry in entries):
        written.setdefault((entry.producer_id, entry.epoch), set()).update(entry.content)
    return written


def _others_than_read(
    written: Mapping[tuple[int, int], set[Row]], read: Mapping[tuple[int, int], set[Row]]
) -> list[str]:
    """Transactions whose rows are not those that their own offsets say they are."""
    return [
        f"producer {owner[0]}, epoch {owner[1]} has written {sorted(written.get(owner, ()))}, and its offsets say "
        f"{sorted(read.get(owner, ()))}"
        for owner in sorted(written.keys() | read.keys())
        if written.get(owner, set()) != read.get(owner, set())
    ]


def _ledgers_offsets(kafka: ModelKafka) -> Iterator[tuple[tuple[int, int], Offsets, bool]]:
    """What each committed record of the ledger says of the source, whose it is, and whether a bucket's. An entry in
    real time also has where buckets began before that run on.
    """
    for entry in kafka.partitions[_LEDGER_AT].committed():
        for _, value in entry.content:
            if bucket_record.is_one(value):
                yield (entry.producer_id, entry.epoch), bucket_record.decode(value).offsets, True
            else:
                for source in filter(None, entry_format.decode_record(value).sources or ()):
                    yield (entry.producer_id, entry.epoch), source.offsets, False


def reached(kafka: ModelKafka) -> dict[TopicPartition, int]:
    """How far the query has come, as the ledger says."""
    offsets: dict[TopicPartition, int] = {}
    for _, said, _ in _ledgers_offsets(kafka):
        offsets |= {tp: max(at, offsets.get(tp, 0)) for tp, at in said.items()}
    return offsets


def ledger_of(kafka: ModelKafka) -> dict[tuple[int, int], LedgerEntry]:
    """Every entry that was ever committed, in order, by its producer id and epoch.

    Without what was written: its time is real, so it differs from run to run.
    """
    return {
        (entry.producer_id, entry.epoch): replace(entry_format.decode_record(value), written=None)
        for entry in kafka.partitions[_LEDGER_AT].committed()
        for _, value in entry.content
        if not bucket_record.is_one(value)
    }


def _of_pointer(record: LedgerEntry) -> LedgerEntry:
    """The record without what a pointer leaves out."""
    left = record.left and SourceProgress(cluster="", offsets={})
    kept = replace(record, earlier_runs=(), transaction_version=None, outputs={}, sources=None, writes=None, left=left)
    return replace(kept, group=None, starts=())


def _pointers(kafka: ModelKafka, committed: Mapping[tuple[int, int], LedgerEntry]) -> list[str]:
    """Pointers that differ from the record of their transaction."""
    wrong = []
    for producer_id, epoch, offsets, _ in kafka.group(OPTIONS.ledger_group).history:
        for offset, metadata in offsets.values():
            pointer = entry_format.decode_committed(OffsetAndMetadata(offset=offset, metadata=metadata))
            record = committed.get((producer_id, epoch))
            if record is None or _of_pointer(record) != pointer:
                wrong.append(f"the pointer {pointer} was committed with the record {record}")
    return wrong


def _not_once(visible: Visible, ends: Offsets) -> list[str]:
    seen = Counter(row for entries in visible.values() for entry in entries for row in entry.content)
    expected = {Row(tp.partition, offset) for tp, end in ends.items() for offset in range(end)}
    wrong = [f"{row} was written {seen[row]} times" for row in sorted(expected) if seen[row] > 1]
    wrong += [f"{row} was lost" for row in sorted(expected - seen.keys())]
    return wrong + [f"{row} is not from the source" for row in sorted(seen.keys() - expected)]


def _out_of_order(visible: Visible) -> list[str]:
    wrong = []
    for tp, entries in visible.items():
        last: dict[int, int] = {}
        for entry in entries:
            for row in entry.content:
                if row.offset <= last.get(row.partition, -1):
                    wrong.append(f"{tp} has {row} after offset {last[row.partition]}")
                last[row.partition] = row.offset
    return wrong


def _torn(visible: Visible, committed: Mapping[tuple[int, int], LedgerEntry], *, reads: bool) -> list[str]:
    """Records that are visible without their transaction's ledger entry, or with one that says that a query had read
    others. The entry of a batch write does not say what was read.
    """
    written = _written(visible)
    wrong = [
        f"records of producer {id_}, epoch {epoch} are visible without a ledger entry"
        for id_, epoch in sorted(written.keys() - committed.keys())
    ]
    if not reads:
        return wrong
    read = {
        owner: {
            Row(tp.partition, offset)
            for source in filter(None, entry.sources or ())
            for tp, end in source.offsets.items()
            for offset in range((source.start or {}).get(tp, 0), end)
        }
        for owner, entry in committed.items()
    }
    return wrong + _others_than_read({owner: written.get(owner, set()) for owner in read}, read)


def _gaps(entries: list[LedgerEntry]) -> list[str]:
    wrong = []
    before: LedgerEntry | None = None
    for entry in entries:
        follows = before.batch_id + 1 if before and before.query_id == entry.query_id else 0
        if entry.batch_id != follows:
            wrong.append(f"the ledger goes from {before} to {entry}")
        before = entry
    return wrong


def _source_offsets(
    kafka: ModelKafka, committed: Mapping[tuple[int, int], LedgerEntry], records: int, *, elsewhere: bool
) -> list[str]:
    """Partitions in which the last entry or the group is not at the source's end, or the group has offsets of another
    cluster.
    """
    if not committed:
        return ["readers see no entry of the ledger"]
    last = list(committed.values())[-1]
    wrong = [
        f"the ledger is at {progress.offsets.get(tp)} of {tp}"
        for progress in filter(None, last.sources or ())
        for tp in SOURCE
        if progress.offsets.get(tp) != records
    ]
    if elsewhere:
        offsets = kafka.group(OPTIONS.group_id).offsets
        return wrong + [f"the group is at {at} of {tp}, which is another cluster's" for tp, at in offsets.items()]
    return wrong + _group_offsets(kafka, dict.fromkeys(SOURCE, records))


def _group_offsets(kafka: ModelKafka, ends: Offsets) -> list[str]:
    group = kafka.group(OPTIONS.group_id)
    offsets = group.expired | group.offsets
    return [
        f"the group is at {offsets.get(tp)} of {tp}" for tp, end in ends.items() if offsets.get(tp, (-1, ""))[0] != end
    ]


def _miscounted(claims: list[Claim], visible: Visible) -> list[str]:
    """Reports of a commit with another number of records than are visible under its producer id and epoch.

    None may be visible: a commit in doubt may turn out to be a successor's commit of the same batch.
    """
    seen: Counter[tuple[int, int]] = Counter()
    for entries in visible.values():
        for entry in entries:
            seen[entry.producer_id, entry.epoch] += len(entry.content)
    return [
        f"{claim.who} reports {report.records} records of batch {report.batch_id} under epoch {report.epoch}, "
        f"{seen[report.producer_id, report.epoch]} are visible"
        for claim in claims
        if (report := claim.report) is not None
        and report.outcome == "committed"
        and seen[report.producer_id, report.epoch] not in (0, report.records)
    ]


def _untrue(claims: list[Claim], committed: dict[tuple[int, int], LedgerEntry]) -> list[str]:
    """Untrue reports to a driver."""
    wrong = []
    for claim in claims:
        batch = claim.batch
        entry = batch.query_id, batch.batch_id, batch.digest
        if claim.outcome in ("committed", "skipped") and entry not in map(_named, committed.values()):
            wrong.append(f"{claim.who} learned that batch {batch.batch_id} is {claim.outcome}, which it is not")
        own = (committed.get((i.producer_id, i.epoch)) for i in claim.identities)
        by_itself = any(recorded is not None and _named(recorded) == entry for recorded in own)
        if (claim.outcome, by_itself) in (("nothing", True), ("everything", False)):
            wrong.append(
                f"{claim.who} learned that {claim.outcome} of batch {batch.batch_id} is committed by it: untrue"
            )
    return wrong


def _named(entry: LedgerEntry) -> tuple[str, int, str]:
    return entry.query_id, entry.batch_id, entry.digest
