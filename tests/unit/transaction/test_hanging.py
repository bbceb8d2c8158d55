"""What hangs in a partition because its marker was left out: how it is ended before the next batch, or why not."""

from __future__ import annotations

import pytest

from spark_kafka_eos.appending.report import Appended
from spark_kafka_eos.errors import BrokerError, LedgerRefused, ProducerFenced
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.wire import single
from spark_kafka_eos.kafka.wire.record_batch import stamp
from spark_kafka_eos.ledger import entry_format
from spark_kafka_eos.ledger.decide import decide_micro_batch
from spark_kafka_eos.ledger.entry import LedgerEntry
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.transaction.commit import commit_batch
from spark_kafka_eos.transaction.shared import SharedTransaction
from tests.batches import BY_DRIVER, appended_to, reads
from tests.model_kafka import CLIENT, KafkaModel

OPTIONS = sink_options({"kafka.bootstrap.servers": "b:1", "kafka.transactional.id": "id", "topic": "out"})
OUTPUT = TopicPartition("out", 0)
TOPIC_NOT_ALLOWED, CLUSTER_NOT_ALLOWED, UNSUPPORTED_VERSION = 29, 31, 35
SOMEBODY = 99  # another producer's id


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    return KafkaModel(request.param, {"out": 1})


def driver(kafka):
    """A new one, as a restart makes it."""
    return SharedTransaction(OPTIONS, kafka.cluster(CLIENT), decide_micro_batch(OPTIONS), clock=kafka.clock)


def run(transaction, number):
    """The whole micro-batch, without records of its own."""
    return commit_batch(
        transaction,
        MicroBatch(query_id="query", batch_id=number, digest=f"digest {number}"),
        lambda _: Appended(partitions=0, records=0, bytes=0, topics=appended_to(transaction.cluster, OUTPUT)),
        max_attempts=1,
        choice=BY_DRIVER,
    )


def hang(kafka, producer_id, epoch, value=b"hanging"):
    """Append a record in a transaction that its coordinator does not know."""
    code, _ = kafka.partitions[OUTPUT].append(producer_id, epoch, 0, (value,))
    assert code == 0


def seen(kafka):
    """What read_committed consumers see in the output."""
    return [value for entry in kafka.partitions[OUTPUT].committed() for value in entry.content]


def refuse(kafka, api, code, topic="out"):
    """Have brokers refuse this request for the topic."""

    def meet(request, answer):
        response = answer()
        for each in response.topics if api == "DescribeProducers" else response.markers[0].topics:
            for partition in each.partitions if each.name == topic else ():
                partition.error_code = code
        return response

    kafka.meets[api] = meet


@pytest.mark.parametrize("restarted", [False, True], ids=["the same driver", "another driver"])
def test_what_was_committed_gets_its_marker(kafka, restarted):
    transaction = driver(kafka)
    last = run(transaction, 0)
    hang(kafka, last.producer_id, last.epoch)
    assert seen(kafka) == []
    run(driver(kafka) if restarted else transaction, 1)
    assert seen(kafka) == [b"hanging"]


def test_without_the_right_to_write_it_nothing_is_written(kafka):
    last = run(driver(kafka), 0)
    hang(kafka, last.producer_id, last.epoch)
    refuse(kafka, "WriteTxnMarkers", CLUSTER_NOT_ALLOWED)
    with pytest.raises(LedgerRefused, match="is not authorized to write it") as refused:
        run(driver(kafka), 1)
    assert "Grant ClusterAction on the cluster" in str(refused.value)
    assert refused.value.committed == "nothing"
    del kafka.meets["WriteTxnMarkers"]
    run(driver(kafka), 1)
    assert seen(kafka) == [b"hanging"]


def test_what_was_aborted_stays_so(kafka):
    last = run(driver(kafka), 0)
    hang(kafka, last.producer_id, last.epoch + 1)
    run(driver(kafka), 1)
    assert seen(kafka) == []
    assert kafka.open() == []


def test_a_driver_that_is_paused_while_it_aborts_looks_whose_the_id_is_before_it_takes_an_epoch(kafka):
    last = run(driver(kafka), 0)
    hang(kafka, last.producer_id, last.epoch + 1)
    taken = []

    def abort(_request, answer):
        answered = answer()
        del kafka.meets["EndTxn"]
        assert run(driver(kafka), 1).outcome == "committed"
        taken.extend(kafka.sent("InitProducerId"))
        return answered

    kafka.meets["EndTxn"] = abort
    with pytest.raises(ProducerFenced, match="now belongs to"):
        run(driver(kafka), 1)
    assert kafka.sent("InitProducerId") == taken


def test_what_is_older_than_the_last_commit_is_refused(kafka):
    transaction = driver(kafka)
    first = run(transaction, 0)
    run(transaction, 1)
    hang(kafka, first.producer_id, first.epoch)
    with pytest.raises(LedgerRefused, match="Another batch has been committed since") as refused:
        run(driver(kafka), 2)
    assert "abort --topic out --partition 0 --start-offset 0" in str(refused.value)


def test_an_aborted_record_of_a_former_producer_id_in_the_ledger_gets_its_marker_from_whoever_reads_it(kafka):
    run(driver(kafka), 0)
    at = TopicPartition(OPTIONS.ledger_topic, 0)
    value = entry_format.encode_record(LedgerEntry(query_id="query", batch_id=1, digest="digest 1", serial=2))
    batch = bytearray(single.encode_record(b"id", value, 0))
    stamp(batch, producer_id=SOMEBODY, epoch=32_766, base_sequence=0, transactional=True)
    kafka.partitions[at].append(SOMEBODY, 32_766, 0, (value,), batch=bytes(batch))
    assert run(driver(kafka), 1).outcome == "committed"
    assert kafka.open() == []


@pytest.mark.parametrize("version", [2, 1], ids=["TV2", "TV1"])
def test_source_offsets_that_were_aborted_and_stay_pending_are_ended_before_the_first_batch(version):
    """No entry says where the sources ended, so the group is asked: it calls its offset unstable for ever."""
    source, left_out = TopicPartition("in", 0), []

    def leave_out(joined):
        place = next((tp for tp in joined if tp == brokers.group(OPTIONS.group_id).kept_in), None)
        left_out.append(place)
        return place if len(left_out) == 1 else None

    brokers = KafkaModel(version, {"in": 1, "out": 1}, leaves_out=leave_out)
    first = MicroBatch(query_id="query", batch_id=0, digest="digest", sources=reads({source: 0}, {source: 5}))
    crashed = driver(brokers)
    crashed.begin(first)
    crashed.appending()
    crashed.steps.ledger.send_source_offsets(crashed.identity, first)
    crashed.abort()
    pending = brokers.group(OPTIONS.group_id)
    assert pending.unstable(source)
    assert pending.offsets == {}
    restarted = driver(brokers)
    restarted.begin(first)
    assert not pending.unstable(source)
    restarted.appending()
    restarted.commit(first)
    assert pending.offsets[source][0] == 5


def test_what_hangs_of_others_is_theirs(kafka):
    run(driver(kafka), 0)
    hang(kafka, SOMEBODY, 0)
    assert run(driver(kafka), 1).outcome == "committed"
    assert seen(kafka) == []


def test_without_read_on_the_output_a_batch_waits_for_all_that_is_open(kafka):
    run(driver(kafka), 0)
    refuse(kafka, "DescribeProducers", TOPIC_NOT_ALLOWED)
    hang(kafka, SOMEBODY, 0)
    with pytest.raises(LedgerRefused, match="not authorized to see which") as refused:
        run(driver(kafka), 1)
    assert "Grant Read on the topics that the query writes" in str(refused.value)
    kafka.world.after(5.0, "", lambda: kafka.partitions[OUTPUT].mark(SOMEBODY, 0, commit=True))
    assert run(driver(kafka), 1).outcome == "committed"
    assert seen(kafka) == [b"hanging"]


def test_brokers_that_lack_the_request_are_not_asked_again(kafka):
    transaction, asked = driver(kafka), []

    def lack(request, answer):
        asked.append(request)
        raise BrokerError("DescribeProducers", UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION", "a broker")

    run(transaction, 0)
    kafka.meets["DescribeProducers"] = lack
    assert [run(transaction, number).outcome for number in (1, 2)] == ["committed"] * 2
    assert len(asked) == 1, "once"
