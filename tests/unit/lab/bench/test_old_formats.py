"""The benchmark of old message formats, at a size that takes no time; and that what it decodes is what it says."""

import pytest

from lab.bench.old_formats import CODECS, MAGICS, decode_old_formats, name, record_sets
from spark_kafka_eos.kafka.wire.decode import decode
from spark_kafka_eos.kafka.wire.legacy import as_record_batches
from spark_kafka_eos.kafka.wire.record_batch import MAGIC_AT, scan


def test_every_format_and_codec_is_measured():
    found = decode_old_formats(records=300, runs=1)
    assert {series.name for series in found.series} == {name(magic, codec) for magic in MAGICS for codec in CODECS}
    assert {series.records for series in found.series} == {300}


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("codec", CODECS)
def test_the_formats_hold_the_same_records(magic, codec):
    sets = list(record_sets(300, magic, codec, in_a_batch=100))
    assert len(sets) == 3 and {each[MAGIC_AT] for each in sets} == {magic}
    batches = as_record_batches(b"".join(sets))
    assert decode(batches, list(scan(batches)))["offset"].to_pylist() == list(range(300))
