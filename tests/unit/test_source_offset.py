"""The text of a source's offset in the checkpoint, which every release must read and write alike."""

import json
from dataclasses import replace
from uuid import UUID

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition, offsets_from_json
from spark_kafka_eos.source_offset import UNRESOLVED, Origin, SinkIdentity, SourceOffset

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST = SourceOffset(
    offsets={T1: 20, T0: 23},
    start={T0: 3, T1: 0},
    origin=Origin(cluster="c", topic_ids={"t": UUID(int=7)}, leader_epochs={T0: 4, T1: 4}, finds_pattern=True),
    bounds={50: {T0: 30}, 40: {T1: 21}},
    sinks=(SinkIdentity(transactional_id="copy", ledger_topic="books", cluster="d"),),
)
TEXT = (
    r'{"origin={\"cluster\":\"c\",\"topics\":{\"t\":\"00000000-0000-0000-0000-000000000007\"},'
    r'\"epochs\":{\"t\":{\"4\":\"0-1\"}},\"pattern\":\"find\"}": {}, '
    r'"bounds={\"40\":{\"t\":{\"1\":21}},\"50\":{\"t\":{\"0\":30}}}": {}, '
    r'"sinks=[{\"id\":\"copy\",\"topic\":\"books\",\"cluster\":\"d\"}]": {}, '
    r'"start={\"t\": {\"0\": 3, \"1\": 0}}": {}, "t": {"0": 23, "1": 20}}'
)


def test_the_text_is_that_of_the_releases_before():
    assert json.dumps(FIRST.to_json()) == TEXT
    assert SourceOffset.from_json(json.loads(TEXT)) == FIRST


@pytest.mark.parametrize("part", ["start", "origin", "bounds", "sinks"])
def test_a_part_that_is_missing_is_no_part_of_the_text(part):
    without = replace(FIRST, **{part: getattr(SourceOffset(offsets={}), part)})
    assert f"{part}=" not in json.dumps(without.to_json())
    assert SourceOffset.from_json(without.to_json()) == without


def test_readers_of_offsets_alone_see_no_topic_but_those_that_are_read():
    assert offsets_from_json(FIRST.to_json()) == FIRST.offsets
    assert SourceOffset.from_json(UNRESOLVED) == SourceOffset(offsets={})


def test_offsets_of_the_built_in_source_have_no_other_part():
    assert SourceOffset.of({"t": {"0": 5}}) == SourceOffset(offsets={T0: 5})


@pytest.mark.parametrize("value", [{"logOffset": 7}, {"t": {"zero": 5}}, {"t": {"0": "5"}}, "-", 7, None])
def test_offsets_of_another_source_are_none_of_kafka(value):
    assert SourceOffset.of(value) is None
