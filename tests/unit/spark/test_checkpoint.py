import json
import uuid
from dataclasses import replace

import pytest

from spark_kafka_eos.appending.files import LocalFiles
from spark_kafka_eos.errors import KafkaEosError
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.micro_batch import SourceRange
from spark_kafka_eos.source_offset import Origin, SinkIdentity, SourceOffset
from spark_kafka_eos.spark.checkpoint import micro_batch, next_batch, starts_where_the_query_began

PLANNED_AT = 1795267731042
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def metadata(planned_at: int = PLANNED_AT) -> str:
    return json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": planned_at, "conf": {}})


def checkpoint(planned_at: int = PLANNED_AT, **offsets: list[str]):
    """A reader of a checkpoint whose files `offsets/<n>` hold these source lines, planned all at once; keyword `b3` is
    batch 3 in format v1, `v2_b3` in v2."""
    files = {"metadata": '{"id":"q1"}'}
    for name, lines in offsets.items():
        version, batch = name.split("_b") if "_" in name else ("v1", name[1:])
        files[f"offsets/{batch}"] = "\n".join([version, metadata(planned_at), *lines])
    return files.get


def test_a_batch_starts_where_the_previous_one_ended():
    batch = micro_batch(checkpoint(b4=['{"t":{"0":5,"1":7}}'], b5=['{"t":{"0":8,"1":7}}']), 5)
    assert batch.query_id == "q1"
    assert batch.start == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 7}
    assert batch.end == {TopicPartition("t", 0): 8, TopicPartition("t", 1): 7}


def test_the_start_of_batch_0_is_unknown_unless_the_plan_tells_it():
    read = checkpoint(b0=['{"t":{"0":8}}'])
    assert micro_batch(read, 0).start is None
    assert micro_batch(read, 0, first_start=['{"t":{"0":2}}']).start == {TopicPartition("t", 0): 2}


@pytest.mark.parametrize("name", ["state/0/_metadata/metadata", "state/0/_metadata/v2/0"])
def test_a_first_batch_says_whether_its_query_has_state(name):
    stateless = {"metadata": '{"id":"q1"}', "offsets/0": f'v1\n{metadata()}\n{{"t":{{"0":8}}}}'}
    assert not micro_batch(stateless.get, 0).stateful
    assert micro_batch((stateless | {name: "v1\n{}"}).get, 0).stateful


def test_the_digest_of_batch_0_does_not_depend_on_a_start_determined_again():
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


def test_a_batch_of_kafka_sources_has_the_digest_that_it_had_before_v2_was_read():
    one = micro_batch(checkpoint(b0=['{"t":{"0":5,"1":7}}']), 0)
    before, planned = ['{"t":{"0":5,"1":7}}', '{"u":{"0":1}}'], ['{"t":{"0":8,"1":7}}', '{"u":{"0":1}}']
    two = micro_batch(checkpoint(b4=before, b5=planned), 5)
    no_topic_yet = micro_batch(checkpoint(b0=["{}"]), 0)
    assert [one.digest, two.digest, no_topic_yet.digest] == ["93cb8f8eb4af6b3c", "cba14df245915a69", "4bfe37151d28976e"]


def test_a_batch_of_files_is_known_by_the_digest_of_release_0_2_and_not_by_that_of_0_1():
    """As those releases computed them: an upgrade from 0.1 in the middle of such a batch is refused once."""
    digest = micro_batch(checkpoint(b6=['{"logOffset":6}'], b7=['{"logOffset":7}']), 7).digest
    assert (digest, digest != "90be487210827ca1") == ("7aca8b013902582f", True)


@pytest.mark.parametrize("end", ['{"logOffset":7}', "17", '{"offset":5,"timestamp":1000}', "-"])
@pytest.mark.parametrize("beside", [[], ['{"t":{"0":8}}']])
def test_beside_a_source_that_only_counts_a_batch_planned_again_is_another_one(end, beside):
    def planned(at: int) -> str:
        return micro_batch(checkpoint(at, b6=[*beside, '{"logOffset":6}'], b7=[*beside, end]), 7).digest

    assert planned(1000) == planned(1000) != planned(1001)


def test_a_plan_anew_with_the_same_kafka_offsets_is_the_same_batch():
    assert (
        micro_batch(checkpoint(1000, b0=['{"t":{"0":8}}']), 0).digest
        == micro_batch(checkpoint(1001, b0=['{"t":{"0":8}}']), 0).digest
    )


@pytest.mark.parametrize("text", ["", "{}", "not json", "[]", '{"batchTimestampMs":null}'])
def test_a_source_that_only_counts_is_refused_without_the_instant_of_the_plan(text):
    files = {"metadata": '{"id":"q"}', "offsets/0": f'v1\n{text}\n{{"logOffset":7}}'}
    with pytest.raises(KafkaEosError, match="the time of planning"):
        micro_batch(files.get, 0)


@pytest.mark.parametrize("files", [{}, {"offsets/0": "v1"}, {"offsets/0": "v2"}])
def test_a_checkpoint_without_the_batch_is_refused(files):
    with pytest.raises(KafkaEosError, match="offsets/0"):
        micro_batch((files | {"metadata": '{"id":"q"}'}).get, 0)


@pytest.mark.parametrize("files", [checkpoint(b0=[]), checkpoint(v2_b0=[])], ids=["v1", "v2"])
def test_a_file_that_was_cut_off_before_its_sources_is_refused_and_not_a_batch_that_reads_nothing(files):
    with pytest.raises(KafkaEosError, match="'offsets/0' has no source"):
        micro_batch(files, 0)


def test_a_missing_start_is_refused_rather_than_guessed():
    with pytest.raises(KafkaEosError, match="offsets/6"):
        micro_batch(checkpoint(b7=['{"t":{"0":8}}']), 7)


@pytest.mark.parametrize("version", ["v3", "v10", "1", ""])
def test_an_unknown_format_of_the_offset_log_is_refused_and_says_what_to_set(version):
    with pytest.raises(KafkaEosError, match="formatVersion"):
        micro_batch({"metadata": '{"id":"q"}', "offsets/0": f"{version}\n{metadata()}\n{{}}"}.get, 0)


@pytest.mark.parametrize("line", ["{}", "-", ":{}", "orders:", "orders"])
def test_a_line_without_a_sources_name_is_refused_in_v2(line):
    with pytest.raises(KafkaEosError, match="without a source name"):
        micro_batch(checkpoint(v2_b0=['refunds:{"u":{"0":3}}', line]), 0)


def test_v2_is_read_by_the_sources_names():
    read = checkpoint(v2_b3=['b:{"u":{"0":3}}', 'a:{"t":{"0":5}}'], v2_b4=['a:{"t":{"0":8}}', 'b:{"u":{"0":3}}'])
    batch = micro_batch(read, 4)
    assert (batch.start, batch.end) == ({T0: 5, U0: 3}, {T0: 8, U0: 3})
    assert batch.sources == (SourceRange(start={T0: 5}, end={T0: 8}), SourceRange(start={U0: 3}, end={U0: 3}))


def test_the_digest_of_v2_does_not_depend_on_the_order_of_lines_but_on_whose_they_are():
    lines = ['a:{"t":{"0":5}}', 'b:{"t":{"0":8}}']
    swapped = ['a:{"t":{"0":8}}', 'b:{"t":{"0":5}}']
    assert micro_batch(checkpoint(v2_b0=lines), 0).digest == micro_batch(checkpoint(v2_b0=lines[::-1]), 0).digest
    assert micro_batch(checkpoint(v2_b0=lines), 0).digest != micro_batch(checkpoint(v2_b0=swapped), 0).digest


def test_in_v2_too_a_batch_planned_again_is_another_one_beside_a_source_that_only_counts():
    def planned(at: int) -> str:
        return micro_batch(checkpoint(at, v2_b0=['files:{"logOffset":7}', 'orders:{"t":{"0":8}}']), 0).digest

    assert planned(1000) == planned(1000) != planned(1001)


def test_a_source_that_was_added_has_no_known_start_and_one_that_was_removed_is_left_out():
    read = checkpoint(v2_b3=['a:{"t":{"0":5}}', 'gone:{"t":{"1":4}}'], v2_b4=['a:{"t":{"0":8}}', 'new:{"u":{"0":3}}'])
    batch = micro_batch(read, 4)
    assert (batch.start, batch.end) == ({T0: 5}, {T0: 8, U0: 3})
    assert batch.sources == (SourceRange(start={T0: 5}, end={T0: 8}), SourceRange(start=None, end={U0: 3}))


def test_a_source_that_replaces_another_one_does_not_start_where_that_one_ended():
    batch = micro_batch(checkpoint(v2_b3=['a:{"t":{"0":5}}'], v2_b4=['b:{"t":{"0":3}}']), 4)
    assert batch.sources == (SourceRange(start=None, end={T0: 3}),)


@pytest.mark.parametrize("name", ["0", "orders"])
def test_the_first_batch_in_v2_starts_where_the_last_one_in_v1_ended(name):
    read = checkpoint(b3=['{"t":{"0":5}}'], v2_b4=[name + ':{"t":{"0":8}}'])
    batch = micro_batch(read, 4)
    assert batch.start == {T0: 5}
    assert batch.sources == (SourceRange(start={T0: 5}, end={T0: 8}),)
    assert batch.digest == micro_batch(read, 4).digest
    assert batch.digest != micro_batch(checkpoint(b3=['{"t":{"0":4}}'], v2_b4=[name + ':{"t":{"0":8}}']), 4).digest


def test_after_a_change_to_v2_numbers_are_the_positions_of_v1_and_names_tell_nothing():
    v1 = ['{"t":{"0":5}}', '{"u":{"0":1}}']
    numbered = micro_batch(checkpoint(b3=v1, v2_b4=['1:{"u":{"0":2}}', '0:{"t":{"0":8}}']), 4)
    assert numbered.sources == (SourceRange(start={T0: 5}, end={T0: 8}), SourceRange(start={U0: 1}, end={U0: 2}))
    named = micro_batch(checkpoint(b3=v1, v2_b4=['b:{"t":{"0":8}}', 'a:{"u":{"0":2}}']), 4)
    assert named.start is None
    assert named.sources == (SourceRange(start=None, end={U0: 2}), SourceRange(start=None, end={T0: 8}))


@pytest.mark.parametrize("text", [None, "", "{}", "not json", json.dumps([1])])
def test_a_checkpoint_without_a_query_id_is_refused(text):
    files = {"offsets/0": f"v1\n{metadata()}\n-"}
    if text is not None:
        files["metadata"] = text
    with pytest.raises(KafkaEosError, match="query id"):
        micro_batch(files.get, 0)


def test_a_first_batch_whose_source_left_its_start_open_starts_where_it_ends():
    read = checkpoint(b0=['{"t":{"0":8}}', '{"u":{"0":3}}'])
    batch = micro_batch(read, 0, first_start=['{"":{}}', '{"u":{"0":1}}'])
    assert batch.start == {TopicPartition("t", 0): 8, TopicPartition("u", 0): 1}


def test_each_source_is_kept_apart_in_the_order_of_the_plan():
    before = ['{"t":{"0":5}}', '{"logOffset":3}', '{"t":{"0":4,"1":2}}', "-"]
    read = checkpoint(b3=before, b4=['{"t":{"0":8}}', '{"logOffset":4}', '{"t":{"0":6,"1":2}}', '{"u":{"0":1}}'])
    batch = micro_batch(read, 4)
    assert (batch.start, batch.end) == ({T0: 4, T1: 2}, {T0: 6, T1: 2, U0: 1})
    assert batch.sources == (
        SourceRange(start={T0: 5}, end={T0: 8}),
        None,
        SourceRange(start={T0: 4, T1: 2}, end={T0: 6, T1: 2}),
        SourceRange(start=None, end={U0: 1}),
    )


def test_each_source_of_batch_0_has_its_own_start_where_the_plan_tells_it():
    read = checkpoint(b0=['{"t":{"0":8}}', '{"u":{"0":3}}'])
    assert [source and source.start for source in micro_batch(read, 0).sources] == [None, None]
    told = micro_batch(read, 0, first_start=['{"":{}}', '{"u":{"0":1}}'])
    assert told.sources == (SourceRange(start={T0: 8}, end={T0: 8}), SourceRange(start={U0: 1}, end={U0: 3}))
    assert {source and source.start is None for source in micro_batch(read, 0, ['{"u":{"0":1}}']).sources} == {True}


def test_in_v2_it_is_not_guessed_which_source_a_first_start_belongs_to():
    read = checkpoint(v2_b0=['a:{"t":{"0":8}}', 'b:{"u":{"0":3}}'])
    mixed = micro_batch(read, 0, first_start=['{"":{}}', '{"u":{"0":1}}'])
    assert mixed.start is None
    assert [source and source.start for source in mixed.sources] == [None, None]
    left_open = micro_batch(read, 0, first_start=['{"":{}}', '{"":{}}'])
    assert left_open.start == {T0: 8, U0: 3}
    assert left_open.sources == (SourceRange(start={T0: 8}, end={T0: 8}), SourceRange(start={U0: 3}, end={U0: 3}))
    lone = micro_batch(checkpoint(v2_b0=['a:{"t":{"0":8}}']), 0, first_start=['{"t":{"0":2}}'])
    assert (lone.start, lone.sources) == ({T0: 2}, (SourceRange(start={T0: 2}, end={T0: 8}),))


RECORDED = '{"start={\\"t\\": {\\"0\\": 2}}": {}, "t": {"0": 8}}'


@pytest.mark.parametrize("told", [None, ['{"":{}}', '{"":{}}']])
def test_a_first_batch_starts_where_its_source_has_recorded_it(told):
    batch = micro_batch(checkpoint(b0=[RECORDED]), 0, first_start=told and told[:1])
    assert batch.sources == (SourceRange(start={T0: 2}, end={T0: 8}),)
    assert (batch.start, batch.end) == ({T0: 2}, {T0: 8})
    several = checkpoint(v2_b0=["b:" + RECORDED, 'a:{"start={}": {}}'])
    assert micro_batch(several, 0, first_start=told).sources == (
        SourceRange(start={}, end={}),
        SourceRange(start={T0: 2}, end={T0: 8}),
    )


def test_a_recorded_start_is_known_beside_a_source_whose_start_only_the_plan_tells():
    read = checkpoint(b0=[RECORDED, '{"u":{"0":3}}'])
    batch = micro_batch(read, 0, first_start=['{"":{}}', '{"u":{"0":1}}'])
    assert batch.sources == (SourceRange(start={T0: 2}, end={T0: 8}), SourceRange(start={U0: 1}, end={U0: 3}))


def test_a_first_batch_has_the_sinks_that_its_source_has_recorded():
    sink = SinkIdentity(transactional_id="copy", ledger_topic="kept", cluster="c")
    end = json.dumps(replace(SourceOffset.from_json(json.loads(RECORDED)), sinks=(sink,)).to_json())
    assert micro_batch(checkpoint(b0=[end]), 0).sources == (SourceRange(start={T0: 2}, end={T0: 8}, sinks=(sink,)),)
    earlier = micro_batch(checkpoint(b0=[RECORDED]), 0)  # of a release that did not record them
    assert earlier.sources == (SourceRange(start={T0: 2}, end={T0: 8}),)


def test_a_batch_after_the_first_starts_where_that_one_ended_whatever_it_records():
    batch = micro_batch(checkpoint(b0=[RECORDED], b1=['{"t":{"0":9}}']), 1)
    assert (batch.start, batch.end) == ({T0: 8}, {T0: 9})


def planned_in(folder, *ends, done):
    files = LocalFiles(folder)
    (folder / "offsets").mkdir()
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"q1"}')
    for number, end in enumerate(ends):
        (folder / "offsets" / str(number)).write_text(f"v1\n{metadata()}\n{end}")
        (folder / "offsets" / f".{number}.crc").touch()  # as Hadoop's local file system leaves them
        if number < done:
            (folder / "commits" / str(number)).write_text("v1\n{}")
    return files


def test_the_next_batch_is_the_planned_one_until_spark_has_recorded_it_as_done(tmp_path):
    batch, planned = next_batch(planned_in(tmp_path, '{"t":{"0":5}}', '{"t":{"0":8}}', done=1))
    assert batch is not None and planned
    assert (batch.batch_id, batch.start, batch.end) == (1, {T0: 5}, {T0: 8})


def test_the_batch_after_the_last_one_starts_where_that_ended_and_its_end_is_not_known(tmp_path):
    files = planned_in(tmp_path, '{"t":{"0":5}}', '{"t":{"0":8}}', done=2)
    batch, planned = next_batch(files)
    assert batch is not None and not planned
    assert (batch.batch_id, batch.start, batch.end, batch.digest) == (2, {T0: 8}, {T0: 8}, "")
    assert batch.sources == (SourceRange(start={T0: 8}, end={T0: 8}),)


def test_a_next_batch_that_is_not_planned_reads_the_same_topics_of_the_same_cluster(tmp_path):
    origin = Origin(cluster="there", topic_ids={"t": uuid.UUID(int=7)})
    end = json.dumps(SourceOffset(offsets={T0: 5}, origin=origin).to_json())
    batch, _ = next_batch(planned_in(tmp_path, end, done=1))
    assert batch is not None
    assert batch.sources == (SourceRange(start={T0: 5}, end={T0: 5}, start_origin=origin, origin=origin),)


def test_a_source_that_is_not_kafka_stays_unknown_in_the_next_batch(tmp_path):
    batch, _ = next_batch(planned_in(tmp_path, '{"logOffset":3}', done=1))
    assert batch is not None
    assert batch.sources == (None,)


def test_a_checkpoint_in_which_nothing_is_planned_has_no_next_batch(tmp_path):
    assert next_batch(LocalFiles(tmp_path / "new")) == (None, False)


@pytest.mark.parametrize(
    ("first", "later", "began"),
    [
        ([RECORDED], ['{"t":{"0":2}}'], True),
        ([RECORDED], ['{"t":{"0":3}}'], False),
        ([RECORDED, RECORDED], ['{"t":{"0":2}}', '{"t":{"0":2}}'], True),
        ([RECORDED, RECORDED], ['{"t":{"0":2}}', '{"t":{"0":9}}'], False),
        ([RECORDED, '{"logOffset":0}'], ['{"t":{"0":2}}', '{"logOffset":7}'], False),
        ([RECORDED], ['{"t":{"0":2}}', '{"logOffset":7}'], False),
        (['{"t":{"0":2}}'], ['{"t":{"0":2}}'], False),
    ],
    ids=["nothing read", "read", "both read nothing", "one has read", "a file source", "one more", "no start recorded"],
)
def test_it_is_known_that_a_query_has_read_nothing_only_if_each_source_is_where_it_began(first, later, began):
    read = checkpoint(b0=first, b1=later, b2=later)
    assert starts_where_the_query_began(read, micro_batch(read, 2)) is began


@pytest.mark.parametrize(("again", "began"), [(False, True), (True, False)])
def test_a_query_whose_topic_was_created_again_may_have_read_something_before_it_is_where_it_began(again, began):
    """The first batch read ten records, and the second one found the new topic empty."""
    old, new = (Origin(cluster="c", topic_ids={"t": uuid.UUID(int=number)}) for number in (1, 2))
    first = SourceOffset(offsets={T0: 10 if again else 0}, start={T0: 0}, origin=old).to_json()
    later = json.dumps(SourceOffset(offsets={T0: 0}, origin=new if again else old).to_json())
    read = checkpoint(b0=[json.dumps(first)], b1=[later], b2=[later])
    assert starts_where_the_query_began(read, micro_batch(read, 2)) is began
