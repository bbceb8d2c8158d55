import json

import pytest

from spark_kafka_eos.eos.checkpoint import micro_batch
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.model import TopicPartition

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795267731042,"conf":{}}'


def checkpoint(**offsets: list[str]):
    """A reader of a checkpoint whose files `offsets/<n>` hold these source lines; keyword `b3` is batch 3."""
    files = {f"offsets/{name[1:]}": "\n".join(["v1", METADATA, *lines]) for name, lines in offsets.items()}
    files["metadata"] = '{"id":"q1"}'
    return files.get


def test_a_batch_starts_where_the_one_before_ended():
    batch = micro_batch(checkpoint(b4=['{"t":{"0":5,"1":7}}'], b5=['{"t":{"0":8,"1":7}}']), 5)
    assert batch.query_id == "q1"
    assert batch.start == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    assert batch.end == {TopicPartition("t", 0): 8, TopicPartition("t", 1): 7}


def test_the_start_of_batch_0_is_unknown_unless_the_plan_tells_it():
    read = checkpoint(b0=['{"t":{"0":8}}'])
    assert micro_batch(read, 0).start is None
    assert micro_batch(read, 0, first_start=['{"t":{"0":2}}']).start == {TopicPartition("t", 0): 2}


def test_the_digest_of_batch_0_does_not_depend_on_a_start_determined_anew():
    read = checkpoint(b0=['{"t":{"0":8}}'])
    assert micro_batch(read, 0).digest == micro_batch(read, 0, first_start=['{"t":{"0":2}}']).digest


def test_the_digest_ignores_how_the_json_is_spelt_but_not_what_it_says():
    one = micro_batch(checkpoint(b0=['{"t":{"0":5,"1":7}}'], b1=['{"t":{"0":8,"1":7}}']), 1)
    spelt = micro_batch(checkpoint(b0=['{"t": {"1": 7, "0": 5}}'], b1=['{"t":{"1":7, "0":8}}']), 1)
    other = micro_batch(checkpoint(b0=['{"t":{"0":6,"1":7}}'], b1=['{"t":{"0":8,"1":7}}']), 1)
    assert one.digest == spelt.digest != other.digest


def test_offsets_of_several_kafka_sources_are_merged_and_the_lower_one_counts():
    sources = ['{"t":{"0":5}}', '{"t":{"0":3}}', '{"u":{"2":1}}']
    batch = micro_batch(checkpoint(b0=sources), 0)
    assert batch.end == {TopicPartition("t", 0): 3, TopicPartition("u", 2): 1}


@pytest.mark.parametrize("source", ["-", "17", '{"logOffset":3}', '{"offset":5,"timestamp":1000}', '{"t":{"0":"x"}}'])
def test_a_source_that_is_not_kafka_counts_in_the_digest_but_has_no_offsets(source):
    batch = micro_batch(checkpoint(b0=[source]), 0)
    assert batch.end == {}
    assert batch.digest != micro_batch(checkpoint(b0=['{"logOffset":4}']), 0).digest


@pytest.mark.parametrize("files", [{}, {"offsets/0": "v1"}])
def test_a_checkpoint_without_the_batch_is_refused(files):
    with pytest.raises(KafkaEosError, match="offsets/0"):
        micro_batch((files | {"metadata": '{"id":"q"}'}).get, 0)


def test_a_missing_start_is_refused_rather_than_guessed():
    with pytest.raises(KafkaEosError, match="offsets/6"):
        micro_batch(checkpoint(b7=['{"t":{"0":8}}']), 7)


def test_an_unknown_format_of_the_offset_log_is_refused_and_says_what_to_set():
    with pytest.raises(KafkaEosError, match="formatVersion"):
        micro_batch({"metadata": '{"id":"q"}', "offsets/0": "v2\n{}\n{}"}.get, 0)


@pytest.mark.parametrize("text", [None, "", "{}", "not json", json.dumps([1])])
def test_a_checkpoint_without_a_query_id_is_refused(text):
    files = {"offsets/0": f"v1\n{METADATA}\n-"}
    if text is not None:
        files["metadata"] = text
    with pytest.raises(KafkaEosError, match="query id"):
        micro_batch(files.get, 0)


def test_a_first_batch_whose_source_left_its_start_open_starts_where_it_ends():
    read = checkpoint(b0=['{"t":{"0":8}}', '{"u":{"0":3}}'])
    batch = micro_batch(read, 0, first_start=['{"":{}}', '{"u":{"0":1}}'])
    assert batch.start == {TopicPartition("t", 0): 8, TopicPartition("u", 0): 1}
