"""Whether offsets in a checkpoint still mean the same records, when a query starts again and while it runs."""

from __future__ import annotations

import json
import uuid

import pytest

from spark_kafka_eos.errors import ConfigurationError, DataLoss
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.source_offset import Origin, SinkIdentity, SourceOffset
from tests.unit.reading.brokers import T0, T1, Brokers, json_of, ranges, recorded

TOLERANT = {"failOnDataLoss": "false"}


def asked(brokers):
    return len(brokers.sent("OffsetForLeaderEpoch"))


def batch_after(source, start):
    """The end of the next batch, as Spark records it, and what its tasks read."""
    end = recorded(source.latest(start, limited=False))
    return end, ranges(source.batch(start, end))


def origin_of(offsets):
    origin = SourceOffset.from_json(offsets).origin
    assert origin is not None
    return origin


def one_batch(source):
    """Where a first batch ends."""
    return recorded(source.latest(recorded(source.initial()), limited=False))


# What the checkpoint says


def test_each_end_says_which_records_it_means(open_positions):
    brokers = Brokers(t=[(0, 10), (0, 5)], u=[(0, 1)])
    brokers.topics.leader_epoch[T1] = 3
    source = open_positions(brokers, subscribe="t,u", startingOffsets="earliest")
    first = one_batch(source)
    ids = {name: brokers.id_of(name) for name in ("t", "u")}
    epochs = {T0: 0, T1: 3, TopicPartition("u", 0): 0}
    expected = Origin(cluster="model", topic_ids=ids, leader_epochs=epochs, finds_pattern=True)
    assert origin_of(first) == expected
    assert SourceOffset.from_json(first).start == {T0: 0, T1: 0, TopicPartition("u", 0): 0}
    brokers.has(t=[(0, 20), (0, 5)])
    brokers.elect(T0)
    second = recorded(source.latest(first, limited=False))
    assert origin_of(second).leader_epochs == epochs | {T0: 1}
    assert SourceOffset.from_json(second).start is None
    assert second == json_of(t=[20, 5], u=[1])


def test_nothing_new_is_the_same_text_also_after_an_election_and_in_another_process(open_positions):
    brokers = Brokers(t=[(0, 10)])
    start = one_batch(open_positions(brokers))
    for _ in range(2):
        brokers.elect(T0)
        brokers.seconds += 10
        again = open_positions(brokers).latest(start, limited=False)
        assert json.dumps(again) == json.dumps(start)


def test_the_origin_costs_no_request(open_positions):
    def requests(start_of):
        brokers = Brokers(t=[(0, 10)])
        source = open_positions(brokers)
        start = start_of(one_batch(source))
        brokers.has(t=[(0, 20)])
        brokers.requests.clear()
        source.batch(start, source.latest(start, limited=False))
        return [api for api, _ in brokers.requests]

    assert (
        requests(lambda known: known)
        == requests(lambda _: json_of(t=[10]))
        == ["ListOffsets", "Metadata", "ListOffsets"]
    )


def test_offsets_of_another_cluster_are_refused_before_anything_is_planned(open_positions):
    start = SourceOffset(offsets={T0: 5}, origin=Origin(cluster="another")).to_json()
    for call in (
        lambda source: source.latest(start, limited=False),
        lambda source: source.batch(start, SourceOffset(offsets={T0: 7}, origin=Origin(cluster="another")).to_json()),
    ):
        with pytest.raises(ConfigurationError, match="are of cluster model, but .* the offsets of cluster another"):
            call(open_positions(Brokers(t=[(0, 10)])))


def test_a_cluster_without_an_id_is_not_compared(open_positions):
    start = SourceOffset(offsets={T0: 5}, origin=Origin(cluster="")).to_json()
    assert open_positions(Brokers(t=[(0, 10)])).latest(start, limited=False) == json_of(t=[10])


# A topic that was created again while the query was away


def test_a_topic_created_again_between_two_runs_is_data_loss_although_it_holds_the_offset(open_positions):
    brokers = Brokers(t=[(0, 29)])
    start = one_batch(open_positions(brokers))
    old = brokers.id_of("t")
    brokers.create_again("t", (0, 80))
    source = open_positions(brokers)
    end = recorded(source.latest(start, limited=False))
    said = (
        rf"t-0 from 29 \(the topic was deleted and created again: its id was {old} and is {brokers.id_of('t')}; 29 offs"
    )
    with pytest.raises(DataLoss, match=said):
        source.batch(start, end)
    with pytest.raises(DataLoss, match=said):
        open_positions(brokers).batch(start, end)


def test_a_topic_created_again_between_two_runs_is_read_as_a_whole_on_request(open_positions, caplog):
    brokers = Brokers(t=[(0, 29)], u=[(0, 5)])
    given = {"subscribe": "t,u"} | TOLERANT
    start = one_batch(open_positions(brokers, **given))
    brokers.create_again("t", (7, 80))
    source = open_positions(brokers, **given)
    back, read = batch_after(source, start)
    assert (back, read) == (json_of(t=[7], u=[5]), {})
    assert "22 offsets of the new topic come before 29" in caplog.text
    assert batch_after(source, back)[1] == {0: (7, 80)}


@pytest.mark.parametrize(("latest", "affected"), [(3, 3), (29, 29), (80, 29)])
def test_the_loss_names_how_many_offsets_the_old_position_would_have_skipped(open_positions, latest, affected):
    brokers = Brokers(t=[(0, 29), (0, 29)])
    start = one_batch(open_positions(brokers))
    brokers.create_again("t", (0, latest), (0, latest))
    source = open_positions(brokers)
    with pytest.raises(DataLoss, match=rf"{affected} offsets of the new topic.*; .*: {2 * affected} in total\)"):
        source.batch(start, recorded(source.latest(start, limited=False)))


def test_a_topic_created_again_of_which_nothing_was_read_is_no_loss(open_positions):
    brokers = Brokers(t=[(0, 0)])
    start = one_batch(open_positions(brokers))
    brokers.create_again("t", (0, 8))
    source = open_positions(brokers)
    end, read = batch_after(source, start)
    assert read == {0: (0, 8)}
    assert origin_of(end).topic_ids == {"t": brokers.id_of("t")}


def test_a_batch_planned_before_the_topic_was_created_again_is_not_read_from_the_new_one(open_positions):
    brokers = Brokers(t=[(0, 10)])
    first = open_positions(brokers)
    start = one_batch(first)
    brokers.has(t=[(0, 20)])
    end = recorded(first.latest(start, limited=False))
    old = brokers.id_of("t")
    brokers.create_again("t", (0, 80))
    source = open_positions(brokers)
    [[only]] = source.batch(start, end)
    assert (only.start, only.end, only.topic_id) == (10, 20, old), "whoever reads it raises DataLoss"
    with pytest.raises(DataLoss, match="t-0 from 20 .*20 offsets of the new topic"):
        source.batch(end, recorded(source.latest(end, limited=False)))


def test_a_batch_planned_without_its_start_reads_a_topic_created_again_from_its_beginning(open_positions, caplog):
    """As earlier releases did on Spark 4.0 and 4.1; their checkpoints may have such an end."""
    brokers = Brokers(t=[(0, 29)])
    start = one_batch(open_positions(brokers))
    brokers.create_again("t", (0, 80))
    end = recorded(open_positions(brokers).latest({}, limited=False))
    assert ranges(open_positions(brokers, **TOLERANT).batch(start, end)) == {0: (0, 80)}
    assert "29 offsets of the new topic" in caplog.text
    with pytest.raises(DataLoss):
        open_positions(brokers).batch(start, end)


def test_a_topic_created_again_since_a_sink_committed_it_is_data_loss_for_a_new_query(open_positions, monkeypatch):
    from spark_kafka_eos.ledger import progress
    from spark_kafka_eos.ledger.entry import SourceProgress

    brokers = Brokers(t=[(0, 29)])
    origin = Origin(cluster="model", topic_ids={"t": brokers.id_of("t")}, leader_epochs={T0: 0})
    committed = SourceProgress(cluster="model", offsets={T0: 29}, origin=origin)
    monkeypatch.setattr(
        progress, "committed_progress", lambda sink, cluster: (committed, SinkIdentity(transactional_id="copy"))
    )
    brokers.create_again("t", (0, 80))
    source = open_positions(brokers, startingOffsets="committed", **{"sink.kafka.transactional.id": "copy"})
    end = one_batch(source)
    with pytest.raises(DataLoss, match="t-0 from 29"):
        source.batch(source.initial(), end)


class Outdated(Brokers):
    """Brokers of which one, that was paused for long, answers a look-up of a topic as it was."""

    topic_id: uuid.UUID | None = None
    answers = 0  # before that

    def handle(self, node, api, version, request):
        response = super().handle(node, api, version, request)
        if api == "Metadata" and self.topic_id and request.topics:
            if self.answers:
                self.answers -= 1
                return response
            for topic in response.topics:
                topic.topic_id = self.topic_id
            self.topic_id = None
        return response


@pytest.mark.parametrize("answers", [0, 1], ids=["at the first look", "at the second one"])
@pytest.mark.parametrize("given", [{}, TOLERANT], ids=["strict", "tolerant"])
def test_a_broker_that_still_has_the_id_of_a_topic_deleted_long_ago_is_not_believed(open_positions, given, answers):
    brokers = Outdated(t=[(0, 10)])
    past = brokers.id_of("t")
    brokers.create_again("t", (0, 1000))
    source = open_positions(brokers, startingOffsets="earliest", **given)
    end = one_batch(source)
    brokers.has(t=[(0, 1005)])
    brokers.seconds += 10
    brokers.topic_id, brokers.answers = past, answers
    end, read = batch_after(source, end)
    assert (end, read) == (json_of(t=[1005]), {0: (1000, 1005)})
    assert origin_of(end).topic_ids == {"t": brokers.id_of("t")}
    assert brokers.topic_id is None, "it has answered"


# A log that was truncated


def truncated(open_positions, **given):
    """A query at offset 29 whose partition lost everything behind offset 20 since, and has 60 new records there."""
    brokers = Brokers(t=[(0, 29)])
    start = one_batch(open_positions(brokers))
    brokers.has(t=[(0, 80)])
    brokers.elect(T0, at=20)
    return brokers, open_positions(brokers, **given), start


def test_a_log_truncated_between_two_runs_is_data_loss_although_it_holds_the_offset(open_positions):
    brokers, source, start = truncated(open_positions)
    end = recorded(source.latest(start, limited=False))
    said = "t-0 from 29 .*the log ends at 20: .* its log was truncated; 9 offsets were read that are not those"
    with pytest.raises(DataLoss, match=said):
        source.batch(start, end)
    with pytest.raises(DataLoss, match=said):
        open_positions(brokers).batch(start, end)


def test_a_truncated_log_is_read_from_where_it_was_truncated_on_request(open_positions, caplog):
    brokers, source, start = truncated(open_positions, **TOLERANT)
    back, read = batch_after(source, start)
    assert (back, read) == (json_of(t=[20]), {})
    assert "9 offsets were read that are not those of the log any more" in caplog.text
    end, read = batch_after(source, back)
    assert read == {0: (20, 80)}
    asked_before = asked(brokers)
    assert source.latest(end, limited=False) == end
    assert asked(brokers) == asked_before


def test_a_log_truncated_while_the_query_runs_is_noticed_too(open_positions):
    brokers = Brokers(t=[(0, 29)])
    source = open_positions(brokers)
    start = one_batch(source)
    brokers.has(t=[(0, 80)])
    brokers.elect(T0, at=20)
    with pytest.raises(DataLoss, match="the log ends at 20"):
        batch_after(source, start)


def test_leaders_are_asked_once_after_an_election_and_only_about_its_partition(open_positions):
    brokers = Brokers(t=[(0, 10), (0, 10)])
    source = open_positions(brokers)
    start = one_batch(source)
    for _ in range(2):
        brokers.seconds += 10
        source.latest(start, limited=False)
    assert asked(brokers) == 0
    brokers.elect(T1)
    for process in (source, open_positions(brokers)):
        before = asked(brokers)
        for _ in range(3):
            brokers.seconds += 10
            assert process.latest(start, limited=False) == start
        assert asked(brokers) == before + 1
    [topic] = brokers.sent("OffsetForLeaderEpoch")[0].topics
    assert [(each.partition, each.leader_epoch, each.current_leader_epoch) for each in topic.partitions] == [(1, 0, 1)]


def test_elections_that_lost_nothing_are_no_loss(open_positions):
    brokers = Brokers(t=[(0, 29)])
    start = one_batch(open_positions(brokers))
    for _ in range(3):
        brokers.elect(T0)
    brokers.has(t=[(0, 80)])
    brokers.topics.leader_epoch[T0] = 3
    assert batch_after(open_positions(brokers), start)[1] == {0: (29, 80)}


def test_a_batch_planned_before_the_log_was_truncated_is_data_loss_or_read_as_far_as_it_was(open_positions, caplog):
    brokers = Brokers(t=[(0, 10)])
    first = open_positions(brokers)
    start = one_batch(first)
    brokers.has(t=[(0, 29)])
    end = recorded(first.latest(start, limited=False))
    brokers.has(t=[(0, 80)])
    brokers.elect(T0, at=20)
    with pytest.raises(DataLoss, match=r"t-0 from 20 to 29 \(the log was truncated to 20"):
        open_positions(brokers).batch(start, end)
    source = open_positions(brokers, **TOLERANT)
    assert ranges(source.batch(start, end)) == {0: (10, 20)}
    back, read = batch_after(source, end)
    assert (back, read) == (json_of(t=[20]), {})
    assert batch_after(source, back)[1] == {0: (20, 80)}, "each new record once"


def test_brokers_that_cannot_tell_where_an_epoch_ended_do_not_stop_the_query(open_positions):
    brokers, source, start = truncated(open_positions)

    def unknown(_request, answer):
        answered = answer()
        answered.topics[0].partitions[0].end_offset = -1
        return answered

    brokers.meets["OffsetForLeaderEpoch"] = unknown
    assert batch_after(source, start)[1] == {0: (29, 80)}


def test_offsets_without_an_origin_are_taken_as_before(open_positions):
    brokers = Brokers(t=[(0, 80)])
    brokers.elect(T0, at=20)
    assert batch_after(open_positions(brokers), json_of(t=[29]))[1] == {0: (29, 80)}
    assert asked(brokers) == 0


@pytest.mark.parametrize(("log", "said"), [((0, 20), "t-0 from 29 .*ends at 20"), ((40, 80), "t-0 from 29 to 40")])
def test_offsets_without_an_origin_are_data_loss_where_the_log_ends_before_them_or_begins_after(
    open_positions, log, said
):
    with pytest.raises(DataLoss, match=said):
        batch_after(open_positions(Brokers(t=[log])), json_of(t=[29]))


@pytest.mark.parametrize("restarted", [False, True])
def test_an_end_does_not_name_the_epoch_of_a_leader_with_which_it_was_not_compared(open_positions, restarted):
    brokers = Brokers(t=[(0, 29)])
    given = {"endingTimestamp": "1000000"}
    source = open_positions(brokers, **given)
    start = one_batch(source)
    brokers.has(t=[(0, 40)])

    def truncated():
        brokers.has(t=[(0, 80)])
        brokers.elect(T0, at=20)

    brokers.before_times = truncated
    end = recorded(source.latest(start, limited=False))
    assert (end, origin_of(end).leader_epochs) == (json_of(t=[40]), {T0: 0})
    if restarted:
        source = open_positions(brokers, **given)
    with pytest.raises(DataLoss, match="t-0 from 40 .*the log ends at 20"):
        batch_after(source, end)


@pytest.mark.parametrize("at", [29, 20], ids=["whose log has all", "whose log was truncated"])
def test_an_end_that_is_looked_up_again_at_another_leader_is_compared_with_its_log(open_positions, at):
    brokers = Brokers(t=[(0, 29)])
    start = one_batch(open_positions(brokers))
    brokers.has(t=[(0, 15)])  # a paused broker, which knows of no other leader
    source = open_positions(brokers)

    def another_leader(request, answer):
        del brokers.meets["Metadata"]
        brokers.before("Metadata", elected)
        return answer()

    def elected():
        brokers.has(t=[(0, 80)])
        brokers.elect(T0, at=at)

    brokers.before("ListOffsets", lambda: brokers.meets.update(Metadata=another_leader))
    if at == 20:
        with pytest.raises(DataLoss, match="t-0 from 29 .*the log ends at 20"):
            batch_after(source, start)
        return
    end, read = batch_after(source, start)
    assert read == {0: (29, 80)}
    assert origin_of(end).leader_epochs == {T0: 1}
    brokers.seconds += 10
    assert source.latest(end, limited=False) == end


def test_a_topic_that_was_left_out_and_created_again_is_compared_as_a_new_one(open_positions):
    brokers = Brokers(t=[(0, 29)], u=[(0, 5)])
    source = open_positions(brokers, subscribe="t,u", startingOffsets="earliest", removedTopics="t")
    end = one_batch(source)
    for _ in range(3):
        brokers.elect(T0)
    brokers.has(u=[(0, 6)], t=[(0, 29)])
    brokers.seconds += 10
    end, _ = batch_after(source, end)
    brokers.delete("t")
    brokers.has(u=[(0, 7)])
    end, _ = batch_after(source, end)
    assert end == json_of(u=[7])
    brokers.has(t=[(0, 29)])
    brokers.seconds += 10
    end, read = batch_after(source, end)
    assert (end, read) == (json_of(t=[29], u=[7]), {0: (0, 29)})
    brokers.has(t=[(0, 80)])
    brokers.elect(T0, at=20)
    brokers.seconds += 10
    with pytest.raises(DataLoss, match="t-0 from 29 .*the log ends at 20"):
        batch_after(source, end)
