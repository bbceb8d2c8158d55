"""What a rule of the check is for: the end of a right history, with one thing changed that only a bug could change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count, pairwise, product
from typing import Any

import pytest

from lab.simulation.chance import Seeded
from lab.simulation.check import ledger_of, real_time_violations, violations
from lab.simulation.conditions import USUAL, Conditions
from lab.simulation.history import Life
from lab.simulation.kafka import ModelKafka
from lab.simulation.partition import Entry
from lab.simulation.query import OPTIONS, OUTPUT, SOURCE, Claim, Row
from lab.simulation.real_time import rows_in
from lab.simulation.real_time_history import RealTimeLife
from lab.simulation.world import World
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.ledger import bucket_record

_LEDGER_AT = TopicPartition(OPTIONS.ledger_topic, 0)
Place = tuple[TopicPartition, int]  # a partition, and where in its log


def ended(fits: Callable[[Life], bool], conditions: Conditions = USUAL) -> Life:
    """The first seed's history that is right and fits, at its end."""
    logging.disable(logging.CRITICAL)
    try:
        for seed in count():
            kind = RealTimeLife if conditions.real_time else Life
            life = kind(World(Seeded(seed)), conditions, name=f"seed {seed}")
            if life.live().wrong == [] and life.way != "batch writes" and fits(life):
                return life
    finally:
        logging.disable(logging.NOTSET)
    raise AssertionError("no seed fits")


def visible(kafka: ModelKafka) -> Iterator[tuple[Place, Entry]]:
    """The record batches that a read_committed consumer sees in the output."""
    for tp in OUTPUT:
        log = kafka.partitions[tp]
        committed = {entry.offset for entry in log.committed()}
        yield from (((tp, at), entry) for at, entry in enumerate(log.log) if entry.offset in committed)


def put(kafka: ModelKafka, place: Place, entry: Entry) -> None:
    tp, at = place
    kafka.partitions[tp].log[at] = entry


def alike(kafka: ModelKafka) -> tuple[tuple[Place, Entry], tuple[Place, Entry]] | None:
    """Two record batches of two transactions, one behind the other in an output partition, with as many rows of other
    source partitions: exchanged, all rows are still there once and in order.
    """
    for (place, entry), (other_place, other) in pairwise(visible(kafka)):
        of, of_other = ({row.partition for row in each.content} for each in (entry, other))
        if (
            place[0] == other_place[0]
            and (entry.producer_id, entry.epoch) != (other.producer_id, other.epoch)
            and len(entry.content) == len(other.content)
            and of.isdisjoint(of_other)
        ):
            return (place, entry), (other_place, other)
    return None


def has_two_batches(life: Life) -> bool:
    return len(ledger_of(life.kafka)) >= 2 and life.queries == 1


def wrong_after(life: Life, **changed: Any) -> list[str]:
    given: dict[str, Any] = {"kafka": life.kafka, "claims": life.claims, "records": life.records, "reads": True}
    return violations(**given | changed)


def tell(wrong: list[str], what: str) -> bool:
    return any(what in each for each in wrong)


# -- records


def test_a_row_that_is_there_twice_is_noticed():
    life = ended(has_two_batches)
    place, entry = next(visible(life.kafka))
    put(life.kafka, place, entry._replace(content=(*entry.content, entry.content[-1])))
    assert tell(wrong_after(life), f"{entry.content[-1]} was written 2 times")


def test_a_row_that_is_missing_is_noticed():
    life = ended(has_two_batches)
    place, entry = next(visible(life.kafka))
    put(life.kafka, place, entry._replace(content=entry.content[1:]))
    assert tell(wrong_after(life), f"{entry.content[0]} was lost")


def test_a_row_that_the_source_does_not_have_is_noticed():
    life = ended(has_two_batches)
    place, entry = next(visible(life.kafka))
    foreign = Row(0, life.records)
    put(life.kafka, place, entry._replace(content=(*entry.content, foreign)))
    assert tell(wrong_after(life), f"{foreign} is not from the source")


def test_rows_in_another_order_are_noticed():
    life = ended(
        lambda life: any(len({r.partition for r in e.content}) < len(e.content) for _, e in visible(life.kafka))
    )
    for place, entry in visible(life.kafka):
        put(life.kafka, place, entry._replace(content=entry.content[::-1]))
    assert tell(wrong_after(life), "after offset")


# -- transactions


@pytest.mark.parametrize(
    "conditions", [USUAL, Conditions(late=True), Conditions(verification=False)], ids=["usual", "late", "not verified"]
)
def test_two_batches_that_exchange_as_many_rows_are_torn_though_every_row_is_there_once_and_in_order(conditions):
    life = ended(lambda life: alike(life.kafka) is not None, conditions)
    found = alike(life.kafka)
    assert found is not None
    (place, entry), (other_place, other) = found
    put(life.kafka, place, entry._replace(content=other.content))
    put(life.kafka, other_place, other._replace(content=entry.content))
    wrong = wrong_after(life)
    assert len(wrong) == 2
    for each in (entry, other):
        assert tell(wrong, f"producer {each.producer_id}, epoch {each.epoch} has written")


def test_rows_without_their_transactions_entry_are_noticed():
    life = ended(has_two_batches)
    place, entry = next(visible(life.kafka))
    put(life.kafka, place, entry._replace(epoch=entry.epoch + 100))
    assert tell(wrong_after(life), f"producer {entry.producer_id}, epoch {entry.epoch + 100} are visible without")


def test_an_entry_without_its_transactions_rows_is_noticed():
    life = ended(has_two_batches)
    for place, entry in list(visible(life.kafka)):
        put(life.kafka, place, entry._replace(content=()))
    assert tell(wrong_after(life), "has written [], and its offsets say [Row")


def test_a_transaction_that_is_open_is_noticed():
    life = ended(has_two_batches)
    producer = next(iter(ledger_of(life.kafka)))
    life.kafka.partitions[OUTPUT[0]].append(producer[0], producer[1] + 100, 0, (Row(0, 0),))
    assert tell(wrong_after(life), f"{OUTPUT[0]} is stable up to")


# -- ledger, pointer, group


def test_a_batch_that_the_ledger_leaves_out_is_noticed():
    life = ended(has_two_batches)
    log = life.kafka.partitions[_LEDGER_AT]
    first = log.committed()[0]
    log.log = [entry for entry in log.log if entry.offset != first.offset]
    assert tell(wrong_after(life), "the ledger goes from None to")


def test_a_pointer_of_another_batch_than_its_transactions_entry_is_noticed():
    life = ended(has_two_batches)
    history = life.kafka.group(OPTIONS.ledger_group).history
    first, second = history[:2]
    history[:2] = first._replace(offsets=second.offsets), second._replace(offsets=first.offsets)
    assert tell(wrong_after(life), "the pointer")


def test_a_ledger_that_nobody_sees_is_noticed():
    life = ended(has_two_batches)
    life.kafka.partitions[_LEDGER_AT].log.clear()
    assert tell(wrong_after(life), "readers see no entry of the ledger")


def test_a_ledger_and_a_group_before_the_sources_end_are_noticed():
    life = ended(has_two_batches)
    wrong = wrong_after(life, records=life.records + 1)
    for tp in SOURCE:
        assert tell(wrong, f"the ledger is at {life.records} of {tp}")
        assert tell(wrong, f"the group is at {life.kafka.group(OPTIONS.group_id).offsets[tp]} of {tp}")


def test_a_group_with_offsets_of_another_cluster_is_noticed():
    life = ended(has_two_batches, Conditions(elsewhere=True))
    life.kafka.group(OPTIONS.group_id).offsets[SOURCE[0]] = (1, "")
    assert wrong_after(life) == [f"the group is at (1, '') of {SOURCE[0]}, which is another cluster's"]


# -- what drivers learned


def claim_of(life: Life, outcome: str) -> tuple[int, Claim]:
    return next((at, claim) for at, claim in enumerate(life.claims) if claim.outcome == outcome)


def has_claim(outcome: str) -> Callable[[Life], bool]:
    return lambda life: any(claim.outcome == outcome for claim in life.claims)


@pytest.mark.parametrize("outcome", ["committed", "skipped"])
def test_a_driver_that_learned_of_a_commit_that_is_none_is_noticed(outcome):
    life = ended(has_claim(outcome))
    at, claim = claim_of(life, outcome)
    life.claims[at] = replace(claim, batch=replace(claim.batch, batch_id=99))
    assert tell(wrong_after(life), f"learned that batch 99 is {outcome}, which it is not")


def test_a_driver_that_learned_that_nothing_of_its_committed_batch_is_committed_is_noticed():
    life = ended(has_claim("committed"))
    at, claim = next((at, each) for at, each in enumerate(life.claims) if each.outcome == "committed")
    life.claims[at] = replace(claim, outcome="nothing")
    assert tell(wrong_after(life), f"learned that nothing of batch {claim.batch.batch_id} is committed")


def test_a_driver_that_learned_that_all_of_a_batch_is_committed_of_which_nothing_is_is_noticed():
    life = ended(has_claim("nothing"))
    at, claim = claim_of(life, "nothing")
    life.claims[at] = replace(claim, outcome="everything")
    assert tell(wrong_after(life), f"learned that everything of batch {claim.batch.batch_id} is committed")


def test_a_report_of_another_number_of_records_than_are_visible_is_noticed():
    life = ended(has_claim("committed"))
    at, claim = claim_of(life, "committed")
    assert claim.report is not None
    life.claims[at] = replace(claim, report=replace(claim.report, records=claim.report.records + 1))
    assert tell(wrong_after(life), f"reports {claim.report.records + 1} records of batch {claim.batch.batch_id}")


# -- in real time


REAL_TIME = Conditions(real_time=True)


def twice_in_the_ledger(kafka: ModelKafka) -> tuple[int, int] | None:
    """Where in the ledger's log two records of one bucket are."""
    log = kafka.partitions[_LEDGER_AT]
    committed = {entry.offset for entry in log.committed()}
    places: dict[bytes, list[int]] = {}
    for at, entry in enumerate(log.log):
        for key, value in entry.content if entry.offset in committed else ():
            if bucket_record.is_one(value):
                places.setdefault(key, []).append(at)
    return next(((of[0], of[-1]) for of in places.values() if len(of) > 1), None)


def wrong_in_real_time(life: Life, **ends: int) -> list[str]:
    assert isinstance(life, RealTimeLife)
    read = dict.fromkeys(life._read(), life.records + ends.get("more", 0))
    return real_time_violations(life.kafka, read, finished=True)


def test_in_real_time_rows_of_which_the_transactions_offsets_say_nothing_are_noticed():
    life = ended(lambda life: twice_in_the_ledger(life.kafka) is not None, REAL_TIME)
    pairs = product(list(visible(life.kafka)), repeat=2)
    (place, entry), (other_place, other) = next(
        pair
        for pair in pairs
        if (pair[0][1].producer_id, pair[0][1].epoch) != (pair[1][1].producer_id, pair[1][1].epoch)
    )
    put(life.kafka, place, entry._replace(content=other.content, batch=other.batch))
    put(life.kafka, other_place, other._replace(content=entry.content, batch=entry.batch))
    assert set(rows_in(entry.content)) != set(rows_in(other.content))
    assert tell(wrong_in_real_time(life), f"producer {entry.producer_id}, epoch {entry.epoch} has written")


def test_in_real_time_a_bucket_that_goes_back_is_noticed():
    life = ended(lambda life: twice_in_the_ledger(life.kafka) is not None, REAL_TIME)
    found = twice_in_the_ledger(life.kafka)
    assert found is not None
    first, last = found
    log = life.kafka.partitions[_LEDGER_AT].log
    log[first], log[last] = (
        log[first]._replace(content=log[last].content),
        log[last]._replace(content=log[first].content),
    )
    assert tell(wrong_in_real_time(life), "a bucket went back from")


def test_in_real_time_a_ledger_and_a_group_before_the_sources_end_are_noticed():
    life = ended(lambda life: twice_in_the_ledger(life.kafka) is not None, REAL_TIME)
    wrong = wrong_in_real_time(life, more=1)
    for tp in SOURCE:
        assert tell(wrong, f"the ledger is at {life.records} of {tp}")
        assert tell(wrong, f"the group is at {life.kafka.group(OPTIONS.group_id).offsets[tp]} of {tp}")


def test_in_real_time_a_group_beyond_the_ledger_is_noticed():
    life = ended(lambda life: twice_in_the_ledger(life.kafka) is not None, REAL_TIME)
    life.kafka.group(OPTIONS.group_id).offsets[SOURCE[0]] = (life.records + 7, "")
    assert tell(wrong_in_real_time(life), f"the group is at {life.records + 7} of {SOURCE[0]}, beyond the ledger")
