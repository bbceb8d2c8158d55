"""The lag of a source, and the time since a last stable offset last moved."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.observe.lag import Standstill, kafka_offsets, lasting, offsets_behind_latest, standstills

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
RATE = {"description": "RateStream", "startOffset": 1, "endOffset": 2, "latestOffset": 9}


def kafka_source(end, latest, start=None):
    return {
        "description": "KafkaV2[Subscribe[t]]",
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 3,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


def marks(stable, high):
    return LogEnds(last_stable_offset=stable, high_watermark=high)


def test_the_figures_are_the_built_in_sources():
    source = kafka_source({"t": {"0": 10, "1": 4}}, {"t": {"0": 10, "1": 7}})
    assert offsets_behind_latest({"sources": [source]}) == [
        {"minOffsetsBehindLatest": "0", "maxOffsetsBehindLatest": "3", "avgOffsetsBehindLatest": "1.5"}
    ]


def test_each_source_has_its_place_whether_or_not_it_is_kafka():
    kafka = kafka_source({"t": {"0": 1}}, {"t": {"0": 2}})
    assert [bool(figures) for figures in offsets_behind_latest({"sources": [RATE, kafka, RATE]})] == [
        False,
        True,
        False,
    ]


def test_sparks_own_object_does_as_well_as_its_json():
    plain = {
        "id": "2e8b0c1a-0000-0000-0000-000000000001",
        "runId": "2e8b0c1a-0000-0000-0000-000000000002",
        "name": None,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 3,
        "batchDuration": 10,
        "stateOperators": [],
        "sources": [kafka_source({"t": {"0": 10}}, {"t": {"0": 12}})],
        "sink": {"description": "noop", "numOutputRows": -1},
    }
    progress = StreamingQueryProgress.fromJson(plain)
    assert isinstance(progress.sources[0]["endOffset"], str)
    assert offsets_behind_latest(progress) == offsets_behind_latest(plain)
    assert offsets_behind_latest(plain)[0]["maxOffsetsBehindLatest"] == "2"


def test_before_the_first_progress_there_is_no_source():
    assert offsets_behind_latest(None) == []


@pytest.mark.parametrize("latest", [None, "None", "null", {}, "{}"])
def test_without_a_latest_offset_there_is_nothing_to_say(latest):
    assert offsets_behind_latest({"sources": [kafka_source({"t": {"0": 1}}, latest)]}) == [{}]


@pytest.mark.parametrize(
    "other", ["7", '{"logOffset": 3}', '{"a": {"b": 1}}', '{"a": {"0": null}}', '{"a": {"0": []}}', "not json", [1], 7]
)
def test_another_sources_offsets_are_not_taken_for_kafkas(other):
    assert kafka_offsets(other) is None


@pytest.mark.parametrize(("stable", "high", "lag"), [(5, 8, 3), (8, 8, 0), (9, 8, 0)])
def test_the_lag_is_what_lies_after_the_last_stable_offset(stable, high, lag):
    assert marks(stable, high).lag == lag


def test_a_standstill_lasts_from_the_first_look_until_the_offset_moves():
    first = standstills({}, {T0: marks(5, 8), T1: marks(5, 5)}, now=100.0)
    assert first == {T0: Standstill(last_stable_offset=5, since=100.0)}
    second = standstills(first, {T0: marks(5, 20)}, now=110.0)
    assert second == first
    assert lasting(second, 110.0, patience=10.0) == [T0]
    assert lasting(second, 109.9, patience=10.0) == []
    moved = standstills(second, {T0: marks(9, 20)}, now=111.0)
    assert lasting(moved, 111.0, patience=10.0) == []
    assert standstills(moved, {T0: marks(20, 20)}, now=112.0) == {}


def test_the_figures_survive_json():
    source = kafka_source({"t": {"0": 10}}, {"t": {"0": 12}})
    text = json.dumps({"sources": [source]})
    assert offsets_behind_latest(json.loads(text)) == offsets_behind_latest({"sources": [source]})
