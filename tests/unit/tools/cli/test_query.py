"""Tables of `kafka-eos query` in 80 columns, and what `resolve` shows, without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds, TransactionFacts, Unavailable
from spark_kafka_eos.ledger.bucket_record import BucketRecord
from spark_kafka_eos.ledger.diagnosis import Diagnosis
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.verdicts import decide
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.tools.cli import query_tables as command
from spark_kafka_eos.tools.cli.query_json import entry_json
from spark_kafka_eos.tools.cli.query_tables import description, list_table
from spark_kafka_eos.tools.cli.refusal import diagnosis_json, diagnosis_view
from spark_kafka_eos.tools.operators.status import (
    BucketStatus,
    Copies,
    PartitionLag,
    QueryStatus,
    RecordedEntry,
    SourceLag,
    buckets_of,
    in_real_time,
)
from tests.batches import reads, record

NOW = 1_800_000_000_000
LONG = "a-transactional.id-that-is-longer-than-any-table-of-eighty-columns-can-have-in-one-line-of-a-cell"
O0 = TopicPartition("orders.of.every.country.and.every.year.since.the.beginning.of.time", 0)
OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": LONG, "checkpointLocation": "/c"})
OPEN = TransactionFacts(
    state="Ongoing", producer_id=10**12, epoch=32_000, timeout_ms=1, started_ms=NOW - 61_000, described_ms=NOW
)


def shown(view):
    console = Console(width=80)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


def cells(text):
    """What a table says, whatever lines it is folded to."""
    return "".join(text.split())


def query(entry, owner):
    commit = RecordedEntry(record=record(at_ms=NOW - 7_200_000), entry=entry)
    return QueryStatus(transactional_id=LONG, ledger_topic="l", commits=(commit,), owner=owner)


def test_a_query_in_real_time_shows_its_buckets_and_no_offsets_that_are_only_where_they_began():
    began = SourceProgress(cluster="A", offsets={O0: 7})
    entry = LedgerEntry(query_id="q", batch_id=0, digest="d", serial=1, sources=(began,), buckets=4)
    status = replace(query(entry, OPEN), buckets=buckets_of(entry, LONG))
    text = shown(description(status, NOW))
    assert f"4buckets:{LONG}.bucket-0to.bucket-3" in cells(text)
    assert "committed" not in text
    assert entry_json(entry)["sources"] is None
    assert entry_json(entry)["buckets"] == 4


def test_partitions_that_ended_in_real_time_and_are_not_read_now_are_shown():
    read, left = (SourceProgress(cluster="A", offsets={TopicPartition(name, 0): 7}) for name in ("t", "left"))
    entry = LedgerEntry(query_id="q", batch_id=3, digest="d", serial=4, sources=(read,), starts=(3, 4), left=left)
    assert "not read now  left-0@7 of cluster A, where real time ended" in shown(description(query(entry, OPEN), NOW))
    copies = Copies(record=entry, pointer=entry, valid=entry)
    view = shown(command.ledger_view(command.Snapshot(queries=[query(entry, OPEN)], now_ms=NOW, copies=copies)))
    assert "Not read now: left-0@7 of cluster A, where real time ended." in view
    said = entry_json(entry)
    assert (said["left"], said["starts"]) == ({"cluster": "A", "offsets": {"left": {"0": 7}}}, [3, 4])
    none = replace(entry, left=None)
    assert "not read now" not in shown(description(query(none, OPEN), NOW))
    assert entry_json(none)["left"] is None


def test_the_transactions_of_buckets_are_counted_by_what_their_coordinators_say():
    done = replace(OPEN, state="CompleteCommit")
    younger = replace(OPEN, started_ms=NOW - 2_000)
    owners = (done, OPEN, younger, Unavailable(reason="DENIED"), None)
    buckets = tuple(
        BucketStatus(number=number, transactional_id=f"t.bucket-{number}", owner=owner)
        for number, owner in enumerate(owners)
    )
    status = replace(query(LedgerEntry(query_id="q", batch_id=0, digest="d"), OPEN), buckets=buckets)
    assert command.transaction_words(status) == "5 buckets, 2 open: Ongoing, 61 s, 1 unknown"
    assert command.transaction_words(replace(status, buckets=buckets[:1])) == "1 bucket"


def test_a_query_in_real_time_is_where_its_buckets_records_say_and_else_where_they_began():
    o1 = TopicPartition(O0.topic, 1)
    began = SourceProgress(cluster="A", offsets={O0: 7, o1: 8})
    entry = LedgerEntry(query_id="q", batch_id=0, digest="d", serial=1, sources=(began, None), buckets=2, group="g")
    status = replace(query(entry, OPEN), buckets=buckets_of(entry, LONG))
    first = BucketRecord(serial=1, offsets={O0: 70, TopicPartition("other", 0): 1}, topic_ids={})
    of_an_earlier_run = BucketRecord(serial=0, offsets={o1: 9}, topic_ids={})
    source, none = in_real_time(status, {0: first, 1: of_an_earlier_run}).sources
    assert source == SourceLag(cluster="A", offsets={O0: 70, o1: 8})
    assert none is None
    (unreadable, _) = in_real_time(status, "why").sources
    assert unreadable == SourceLag(cluster="A", offsets={}, unknown={O0: "why", o1: "why"})
    assert query(replace(entry, group=None), OPEN).group == LONG


@pytest.mark.parametrize(
    ("owner", "said"),
    [(OPEN, "Ongoing, 61 s"), (None, "expired"), (Unavailable(reason="DENIED"), "unknown")],
    ids=["open", "expired", "denied"],
)
def test_the_list_fits_80_columns_and_cuts_no_name(owner, said):
    entry = LedgerEntry(query_id="q", batch_id=10**9, digest="d", serial=1)
    text = shown(list_table([query(entry, owner)], NOW))
    assert max(map(cell_len, text.splitlines())) <= 80
    rows = [line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")]
    name, batch, committed, unread, held, state = ("".join(column) for column in zip(*rows, strict=True))
    assert cells(name) == LONG
    assert (cells(batch), " ".join(committed.split()), unread.strip(), held.strip()) == (
        str(10**9),
        "2 h ago",
        "?",
        "?",
    )
    assert " ".join(state.split()) == said


def test_an_unreadable_entry_is_listed_as_unknown():
    entry = UnreadableEntry(description="another program has written it", digest="d")
    assert "│ ?" in shown(list_table([query(entry, None)], NOW))


def test_the_dead_letters_of_the_last_batch_are_shown_if_there_are_any():
    for dead, said in [(0, "1,000 records, 7.0 kB, in 12 ms"), (3, "1,000 records, 3 of them dead letters, 7.0 kB")]:
        written = BatchCounts(records=1_000, bytes=7_000, milliseconds=12, dead_letters=dead)
        entry = LedgerEntry(query_id="q", batch_id=7, digest="d", serial=8, written=written)
        assert said in " ".join(shown(description(query(entry, OPEN), NOW)).split())


def test_records_bytes_and_time_of_a_batch_are_unknown_where_its_entry_lacks_them():
    written = BatchCounts(records=1_000, bytes=7_000, milliseconds=12)
    old, new = (LedgerEntry(query_id="q", batch_id=7, digest="d", serial=8, written=each) for each in (None, written))
    for entry, said in ((old, ["?", "?", "?"]), (new, ["1,000", "7.0 kB", "12 ms"])):
        text = shown(command.history_view(command.Snapshot(queries=[query(entry, None)], now_ms=NOW)))
        [row] = [line for line in text.splitlines() if line.startswith("│")]
        assert [cell.strip() for cell in row.split("│")[4:7]] == said


def test_offsets_that_were_deleted_before_the_query_read_them_are_shown_in_red():
    lag = PartitionLag(committed=10, earliest=25, log_ends=LogEnds(last_stable_offset=30, high_watermark=30))
    source = SourceLag(cluster="c", offsets={O0: 10}, partitions={O0: lag})
    entry = LedgerEntry(query_id="q", batch_id=7, digest="d", serial=8)
    late = replace(query(entry, OPEN), sources=(source,))
    console = Console(width=80, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(command.lag_view(command.Snapshot(queries=[late], now_ms=NOW)))
    assert "\x1b[1;31m15 offsets were deleted before the query read them.\x1b[0m" in captured.get()


def refused(planned=True):
    entry = LedgerEntry(query_id="8c1f09aa-6f5a", batch_id=7, digest="0123456789abcdef", serial=8)
    batch = MicroBatch(query_id="8c1f09aa-6f5a", batch_id=3, digest="fedcba9876543210", sources=reads({O0: 1}, {O0: 2}))
    return Diagnosis(entry=entry, owner=OPEN, batch=batch, planned=planned, verdict=decide(entry, batch))


def test_a_choice_is_on_one_line_that_can_be_copied_and_has_its_meaning():
    text = shown(diagnosis_view(refused(), OPTIONS))
    assert "\nresolve='write:8c1f09aa.7.01234567/8c1f09aa.3.fedcba98'\n" in text
    assert "writes this batch; correct if none of it is in the output" in " ".join(text.split())
    assert "producer 1000000000000, epoch 32000: Ongoing, 61 s" in text
    assert max(map(cell_len, text.splitlines())) <= 80


def test_a_batch_that_is_not_planned_has_no_words_yet():
    found = refused(planned=False)
    assert "resolve=" not in shown(diagnosis_view(found, OPTIONS))
    assert diagnosis_json(found)["resolve"] == {}
    assert len(diagnosis_json(refused())["resolve"]) == 2


def test_without_a_checkpoint_only_the_ledger_is_shown():
    options = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "t"})
    text = shown(diagnosis_view(Diagnosis(entry=None), options))
    assert "nothing is committed under this transactional id" in text
    assert "give --checkpoint-location" in text
    assert diagnosis_json(Diagnosis(entry=None))["verdict"] is None
