"""What was not signed with the key, for this transactional.id and with these fields, is never taken for an entry."""

from __future__ import annotations

import json

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger.copies import newest
from spark_kafka_eos.ledger.entry import BatchCounts, LedgerEntry, MovedLedger, SourceProgress, UnreadableEntry
from spark_kafka_eos.ledger.entry_format import (
    NotAnEntry,
    decode_committed,
    decode_record,
    encode_pointer,
    encode_record,
)
from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.ledger.verdicts import decide
from spark_kafka_eos.micro_batch import MicroBatch

OLD, NEW = "a key of 16 letters", "another key of 16 letters"
AT = TopicPartition("books", 0)
SIGNER = Signer("mine", [OLD])
ENTRY = LedgerEntry(
    query_id="q",
    batch_id=7,
    digest="d",
    serial=3,
    run_id="r",
    outputs={"out": None},
    sources=(SourceProgress(cluster="c", offsets={TopicPartition("in", 0): 9}),),
    written=BatchCounts(records=1, bytes=2, milliseconds=3),
)
BATCH = MicroBatch(query_id="q", batch_id=7, digest="d")
SIGNED = encode_record(ENTRY, SIGNER)
FIELDS = sorted(json.loads(SIGNED).keys() - {"v"})


def verdict(record, signer=SIGNER, committed=()):
    found = newest(record, dict(committed), AT, signer)
    assert not isinstance(found, MovedLedger)
    return decide(found, BATCH)


def test_a_signed_entry_counts_in_both_places():
    assert decode_record(SIGNED, SIGNER) == ENTRY
    assert decode_committed(encode_pointer(ENTRY, 5, SIGNER), SIGNER).batch_id == 7
    assert verdict(SIGNED).reason == "batch 7 with exactly these offsets is already committed"


def test_who_has_no_key_reads_signed_entries_too():
    assert decode_record(SIGNED) == ENTRY


@pytest.mark.parametrize(
    "forged",
    [
        encode_record(ENTRY),
        encode_record(ENTRY, Signer("mine", [NEW])),
        encode_record(ENTRY, Signer("other's", [OLD])),
        encode_record(MovedLedger(serial=4, topic="elsewhere")),
        SIGNED.replace(b'"mac":"', b'"mac":"0'),
        SIGNED.replace(b'"mac"', b'"Mac"'),
        SIGNED.replace(b'"mac":"', b'"mac":null,"x":"'),
        SIGNED.replace(b'"mac":"', b'"mac":"\xc3\xa9'),
        SIGNED.replace(b'"mac":"', b'"mac":"\\ud800'),
    ],
    ids=[
        "unsigned",
        "another key",
        "copied from another id",
        "moved, unsigned",
        "another mac",
        "no mac",
        "null",
        "not ASCII",
        "no text",
    ],
)
def test_what_is_not_signed_for_this_id_is_refused_and_never_skipped(forged):
    with pytest.raises(NotAnEntry, match="not signed with ledgerKey"):
        decode_record(forged, SIGNER)
    refusal = verdict(forged)
    assert isinstance(refusal, Refuse)
    assert "not signed with ledgerKey" in refusal.reason and "before the key was set" in refusal.reason
    assert refusal.resolutions == ("write", "skip") and refusal.fingerprint, (
        "so that a key can be set for a ledger without one"
    )
    assert OLD not in str(refusal) and NEW not in str(refusal)


@pytest.mark.parametrize("field", FIELDS)
def test_a_changed_field_is_noticed(field):
    fields = json.loads(SIGNED)
    fields[field] = {"serial": 4, "batch": 8}.get(field, "changed")
    with pytest.raises(NotAnEntry, match="not signed with ledgerKey"):
        decode_record(json.dumps(fields).encode(), SIGNER)
    del fields[field]
    with pytest.raises(NotAnEntry, match="not signed with ledgerKey"):
        decode_record(json.dumps(fields).encode(), SIGNER)


def test_a_field_that_was_added_is_noticed():
    with pytest.raises(NotAnEntry, match="not signed with ledgerKey"):
        decode_record(json.dumps(json.loads(SIGNED) | {"incomplete": True}).encode(), SIGNER)


def test_a_pointer_that_somebody_else_commits_does_not_hide_the_record():
    forged = encode_pointer(LedgerEntry(query_id="q", batch_id=99, digest="x", serial=99), 0)
    assert newest(SIGNED, {AT: forged}, AT, SIGNER) == ENTRY
    assert isinstance(newest(None, {AT: forged}, AT, SIGNER), UnreadableEntry), "alone, it is no entry"
    assert isinstance(newest(encode_record(ENTRY), {AT: encode_pointer(ENTRY, 0, SIGNER)}, AT, SIGNER), UnreadableEntry)


def test_a_key_is_replaced_by_a_new_one_before_the_old_one():
    both = Signer("mine", [NEW, OLD])
    assert decode_record(SIGNED, both) == ENTRY
    renewed = encode_record(ENTRY, both)
    assert decode_record(renewed, Signer("mine", [NEW])) == ENTRY
    with pytest.raises(NotAnEntry):
        decode_record(renewed, SIGNER)


def test_without_a_key_everything_is_as_before():
    assert encode_record(ENTRY, UNSIGNED) == encode_record(ENTRY) and b"mac" not in encode_record(ENTRY)


def test_a_refusal_of_an_entry_that_has_another_signature_says_what_to_do_with_the_key():
    refusal = verdict(SIGNED, Signer("mine", [NEW]))
    assert isinstance(refusal, Refuse)
    assert refusal.actions[0] == (
        "If `ledgerKey` was changed, set it to the new key and the one before it, separated by a comma."
    )
    assert verdict(SIGNED, Signer("mine", [NEW, OLD])).reason == verdict(SIGNED).reason
