import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.core import ledger
from spark_kafka_eos.errors import ConfigurationError, LedgerRefused
from spark_kafka_eos.model import LedgerEntry, OffsetAndMetadata

ENTRY = LedgerEntry(query_id="8e3c1c1e-8e3a-4c0e-9d53-0d8d8e2d4a11", batch_id=41, digest="0011223344556677")


def test_an_entry_stands_at_the_offset_after_its_batch() -> None:
    assert ledger.encode(ENTRY).offset == 42


@given(st.text(max_size=300), st.integers(0, 2**62), st.text("0123456789abcdef", max_size=64))
def test_an_entry_survives_the_round_trip(query_id: str, batch_id: int, range_digest: str) -> None:
    entry = LedgerEntry(query_id=query_id, batch_id=batch_id, digest=range_digest)
    assert ledger.decode(ledger.encode(entry)) == entry


def test_the_format_of_version_1_stays_readable() -> None:
    metadata = '{"v":1,"query":"8e3c1c1e-8e3a-4c0e-9d53-0d8d8e2d4a11","batch":41,"digest":"0011223344556677"}'
    assert ledger.encode(ENTRY) == OffsetAndMetadata(offset=42, metadata=metadata)


def test_a_query_id_too_long_for_a_broker_is_an_error_before_anything_is_sent() -> None:
    with pytest.raises(ConfigurationError, match="4,096"):
        ledger.encode(LedgerEntry(query_id="x" * 4_090, batch_id=0, digest=""))


def test_the_longest_metadata_a_broker_takes_is_allowed() -> None:
    overhead = len(ledger.encode(LedgerEntry(query_id="", batch_id=0, digest="")).metadata)
    at_limit = LedgerEntry(query_id="x" * (4_096 - overhead), batch_id=0, digest="")
    assert len(ledger.encode(at_limit).metadata) == 4_096


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "{",
        "null",
        "[]",
        "7",
        '"text"',
        "{}",
        '{"v":1}',
        '{"v":1,"query":"q","batch":"41","digest":"d"}',
        "consumer metadata",
    ],
)
def test_foreign_metadata_is_refused_and_shown(metadata: str) -> None:
    with pytest.raises(LedgerRefused, match="offset 42") as raised:
        ledger.decode(OffsetAndMetadata(offset=42, metadata=metadata))
    assert repr(metadata) in str(raised.value)


def test_long_foreign_metadata_is_shown_in_part() -> None:
    with pytest.raises(LedgerRefused) as raised:
        ledger.decode(OffsetAndMetadata(offset=1, metadata="x" * 4_000))
    assert len(str(raised.value)) < 1_000


def test_an_entry_of_an_unknown_version_is_refused() -> None:
    metadata = json.dumps({"v": 2, "query": "q", "batch": 41, "digest": "d"})
    with pytest.raises(LedgerRefused, match="version 2"):
        ledger.decode(OffsetAndMetadata(offset=42, metadata=metadata))


def test_an_entry_whose_offset_was_reset_by_hand_is_refused() -> None:
    moved = OffsetAndMetadata(offset=7, metadata=ledger.encode(ENTRY).metadata)
    with pytest.raises(LedgerRefused, match="belongs at offset 42"):
        ledger.decode(moved)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert ledger.digest({"a": {"0": 1, "1": 2}, "b": 3}) == ledger.digest({"b": 3, "a": {"1": 2, "0": 1}})


def test_a_digest_tells_ranges_apart() -> None:
    ranges: list[object] = [None, {}, [], {"t": {"0": 1}}, {"t": {"0": 2}}, {"t": {"1": 1}}, [{"t": {"0": 1}}, None]]
    assert len({ledger.digest(one) for one in ranges}) == len(ranges)


def test_a_digest_stays_what_it_was() -> None:
    assert ledger.digest([{"orders": {"0": 5}}, {"orders": {"0": 9}}]) == "9bcc711c5dcb812c"


def test_source_offsets_tell_whose_transactions_commit_them() -> None:
    assert ledger.marked_by(OffsetAndMetadata(offset=1, metadata=ledger.source_mark("orders"))) == "orders"
    assert ledger.marked_by(OffsetAndMetadata(offset=1, metadata="")) is None
    assert ledger.marked_by(ledger.encode(ENTRY)) is None


def test_the_mark_of_a_very_long_transactional_id_fits() -> None:
    assert len(ledger.source_mark("ä" * 10_000).encode()) <= ledger.MAX_METADATA_BYTES
