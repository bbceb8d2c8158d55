"""Whose a transactional.id is, from what its coordinator shows: each case, up to the last epochs of a producer id."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import IllegalTransactionState
from spark_kafka_eos.kafka.producer import NOBODY, ProducerEpoch, ProducerIdentity
from spark_kafka_eos.kafka.protocol.facts import TransactionFacts
from spark_kafka_eos.transaction.hold import (
    HOLD_TRANSITIONS,
    WITH_IDENTITY,
    Hold,
    HoldEvent,
    HoldState,
    after_abort,
    is_given_up,
    is_left_by_commit,
    is_left_by_run,
    is_left_by_take,
    is_shown_committed,
    is_taken_from,
    may_be_given_up,
    taken_since,
)

LAST = 2**15 - 2  # the last epoch of a producer id in which a transaction may begin
NEW_ID = (8, 0)  # the next producer id of id 7
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("PrepareEpochFence", "Dead"),
)


def facts(state: str, producer_id: int, epoch: int) -> TransactionFacts:
    return TransactionFacts(state=state, producer_id=producer_id, epoch=epoch, timeout_ms=60_000)


def held(epoch: int) -> ProducerIdentity:
    return ProducerIdentity(transactional_id="id", producer_id=7, epoch=epoch)


@pytest.mark.parametrize(("now", "taken"), [((7, 3), False), ((7, 4), True), ((7, 2), True), ((8, 3), True)])
def test_an_id_is_taken_once_it_has_another_producer_id_or_epoch(now, taken):
    assert is_taken_from(held(3), facts("Ongoing", *now)) is taken


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("now", [(7, 3), (7, 4), (7, 5), (8, 4)])
def test_a_transaction_is_given_up_if_it_was_aborted_under_the_next_epoch(state, now):
    left = state.endswith("Abort") and now == (7, 4)
    assert is_given_up(held(3), facts(state, *now), was_open=True) is left
    assert is_given_up(replace(held(3), transaction_version=2), facts(state, *now), was_open=False) is left
    assert may_be_given_up(held(3), facts(state, *now)) is left


def test_before_kip_890_only_a_transaction_that_was_open_is_given_up():
    """Another owner that aborts a transaction of its own leaves the same."""
    assert not is_given_up(held(3), facts("CompleteAbort", 7, 4), was_open=False)


@pytest.mark.parametrize(
    ("version", "left"),
    [(0, {(7, 3)}), (1, {(7, 3)}), (2, {(7, 4)}), (None, {(7, 3), (7, 4)})],
)
def test_a_commit_leaves_its_own_epoch_or_the_next_one_as_its_protocol_says(version, left):
    shown = [(7, 2), (7, 3), (7, 4), (7, 5), (8, 3), (8, 4), NEW_ID]
    found = {
        each
        for each in shown
        if is_left_by_commit(ProducerEpoch(7, 3), facts("CompleteCommit", *each), transaction_version=version)
    }
    assert found == left


SHOWN = [(7, 2), (7, 3), (7, 4), (7, 5), (8, 3), (8, 4), NEW_ID]


@pytest.mark.parametrize(
    ("state", "version", "left"),
    [
        # Kafka's name for it, and that of brokers that have no other for what has ended.
        *[("CompleteCommit", version, {(7, 3)}) for version in (0, 1)],
        *[("Empty", version, {(7, 3)}) for version in (0, 1)],
        ("CompleteCommit", 2, {(7, 4)}),
        ("Empty", 2, {(7, 4)}),
        ("CompleteCommit", None, {(7, 3), (7, 4)}),
        ("Empty", None, {(7, 3)}),  # before KIP-890, a new owner's InitProducerId leaves the next epoch
        *[
            (state, version, set())
            for state in STATES
            if state not in ("Empty", "CompleteCommit")
            for version in (0, 1, 2, None)
        ],
    ],
)
def test_what_a_commit_leaves_by_state_protocol_and_epoch(state, version, left):
    assert {
        now for now in SHOWN if is_left_by_commit(ProducerEpoch(7, 3), facts(state, *now), transaction_version=version)
    } == left


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 1, 2, None])
def test_the_run_that_committed_last_owns_the_id_until_somebody_takes_it(state, version):
    """Of all that a new owner may leave, nothing counts as the run's own, in either protocol."""
    opened_again = {(7, 3)} if state == "Ongoing" else set()
    left = {
        now for now in SHOWN if is_left_by_commit(ProducerEpoch(7, 3), facts(state, *now), transaction_version=version)
    }
    owned = {
        now for now in SHOWN if is_left_by_run(ProducerEpoch(7, 3), facts(state, *now), transaction_version=version)
    }
    assert owned == left | opened_again
    if version is not None:
        takes = [(7, 3 + (version >= 2) + taken) for taken in (1, 2)]
        assert not any(now in owned for now in takes)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_that_a_commit_was_applied_only_its_own_state_shows(state, version):
    """An abort, or an owner that begins, may leave the same epoch."""
    shown = {
        now for now in SHOWN if is_shown_committed(replace(held(3), transaction_version=version), facts(state, *now))
    }
    assert shown == ({(7, 4 if version >= 2 else 3)} if state == "CompleteCommit" else set())


@pytest.mark.parametrize("version", [2, None])
def test_another_producer_id_may_be_that_of_an_owner_to_whom_the_brokers_had_forgotten_the_id(version):
    assert not is_left_by_commit(ProducerEpoch(7, LAST), facts("Empty", *NEW_ID), transaction_version=version)


@pytest.mark.parametrize(
    ("version", "epoch", "left"),
    [(2, LAST, True), (None, LAST, True), (1, LAST, False), (2, LAST - 1, False), (None, LAST - 1, False)],
)
def test_only_tv2_and_only_a_commit_in_the_last_epoch_leaves_another_producer_id(version, epoch, left):
    assert (
        is_left_by_commit(ProducerEpoch(7, epoch), facts("CompleteCommit", *NEW_ID), transaction_version=version)
        is left
    )
    assert not is_left_by_commit(ProducerEpoch(7, epoch), facts("CompleteCommit", 8, 1), transaction_version=version)


@pytest.mark.parametrize(
    ("state", "now", "left"),
    [
        ("CompleteCommit", (7, 3), True),
        ("CompleteCommit", (7, 4), True),
        ("Ongoing", (7, 3), True),
        ("Ongoing", (7, 4), False),
        ("CompleteAbort", (7, 4), False),
        ("CompleteAbort", (7, 3), False),
        ("CompleteAbort", (7, 5), False),
        ("Empty", (7, 4), False),
        ("Ongoing", (8, 3), False),
        ("CompleteAbort", (8, 4), False),
    ],
)
def test_a_run_leaves_its_commit_or_what_a_late_request_of_it_opened_again(state, now, left):
    assert is_left_by_run(ProducerEpoch(7, 3), facts(state, *now)) is left


@pytest.mark.parametrize(
    ("now", "taken"),
    [
        ((7, 1), False),
        ((7, 2), False),
        ((7, 3), True),
        ((7, 4), True),
        ((7, 5), True),
        ((7, 6), False),
        (NEW_ID, False),
    ],
)
@pytest.mark.parametrize("state", ["Empty", "PrepareEpochFence", "PrepareAbort", "CompleteAbort"])
def test_one_request_for_the_id_takes_up_to_two_epochs(state, now, taken):
    assert is_left_by_take(ProducerEpoch(7, 3), facts(state, *now)) is taken


@pytest.mark.parametrize("epoch", [4, 5])
def test_whose_a_new_epoch_is_cannot_be_seen_as_long_as_nothing_was_begun_in_it(epoch):
    before = ProducerEpoch(7, 3)
    assert is_left_by_take(before, facts("CompleteAbort", 7, epoch), in_doubt=False), "nobody has it"
    assert not is_left_by_take(before, facts("Empty", 7, epoch), in_doubt=False)
    assert is_left_by_take(before, facts("Empty", 7, 3), in_doubt=False), "nobody came"


def test_the_epoch_that_an_abort_by_the_coordinator_leaves_is_the_next_one():
    assert after_abort(held(3)) == held(4)
    assert is_given_up(held(3), facts("CompleteAbort", 7, after_abort(held(3)).epoch), was_open=True)


@pytest.mark.parametrize("state", ["Ongoing", "PrepareCommit", "CompleteCommit", "Dead"])
def test_who_writes_under_a_later_epoch_has_taken_the_id(state):
    before = ProducerEpoch(7, 3)
    assert not is_left_by_take(before, facts(state, 7, 4))
    assert is_left_by_take(before, facts(state, 7, 3)), "the transaction that was there before"


@pytest.mark.parametrize(("epoch", "taken"), [(LAST + 1, True), (LAST, True), (LAST - 1, True), (LAST - 2, False)])
def test_a_request_leads_to_another_producer_id_if_its_two_epochs_go_beyond_the_last_one(epoch, taken):
    before = ProducerEpoch(7, epoch)
    assert is_left_by_take(before, facts("Empty", *NEW_ID)) is taken
    assert not is_left_by_take(before, facts("Empty", 8, 1))


@pytest.mark.parametrize(("epoch", "taken"), [(0, True), (1, False)])
def test_a_request_for_an_unknown_id_leads_to_the_first_epoch(epoch, taken):
    assert is_left_by_take(NOBODY, facts("Empty", 7, epoch)) is taken


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("now", [(7, 3), (7, 4), (8, 3)])
def test_who_took_the_id_since_is_about_to_write_or_writing(state, now):
    then = ProducerEpoch(7, 3)
    assert taken_since(then, facts(state, *now)) is (state in ("Empty", "Ongoing") and now != (7, 3))


# -- the table

OURS = ProducerIdentity(transactional_id="id", producer_id=7, epoch=3, transaction_version=2)
NEXT = replace(OURS, epoch=4)

# What leads to each state.
WAYS: dict[HoldState, list[HoldEvent]] = {
    HoldState.NOBODY: [],
    HoldState.TAKING: [HoldEvent.EPOCH_REQUESTED],
    HoldState.TAKEN: [HoldEvent.EPOCH_REQUESTED, HoldEvent.INITIALISED],
    HoldState.HELD: [HoldEvent.EPOCH_REQUESTED, HoldEvent.INITIALISED, HoldEvent.LEDGER_READ],
    HoldState.UNCERTAIN: [HoldEvent.EPOCH_REQUESTED, HoldEvent.INITIALISED, HoldEvent.EPOCH_REQUESTED],
    HoldState.RELEASED: [
        HoldEvent.EPOCH_REQUESTED,
        HoldEvent.INITIALISED,
        HoldEvent.EPOCH_REQUESTED,
        HoldEvent.LET_GO,
    ],
    HoldState.LOST: [HoldEvent.EPOCH_REQUESTED, HoldEvent.INITIALISED, HoldEvent.FENCED],
}
WITH_EPOCH = {HoldState.TAKEN, HoldState.HELD, HoldState.UNCERTAIN}


def hold_in(state: HoldState) -> Hold:
    hold = Hold()
    for event in WAYS[state]:
        hold.apply(event, OURS if event in WITH_IDENTITY else None)
    assert hold.state is state
    return hold


@pytest.mark.parametrize("event", HoldEvent)
@pytest.mark.parametrize("state", HoldState)
def test_each_event_leads_to_one_state_with_or_without_an_epoch_or_is_refused_and_changes_nothing(state, event):
    hold = hold_in(state)
    before, identity = (hold.state, hold.identity, hold.last), NEXT if event in WITH_IDENTITY else None
    if (state, event) not in HOLD_TRANSITIONS:
        with pytest.raises(IllegalTransactionState, match=rf"{event.name} .* is illegal in state {state.name}"):
            hold.apply(event, identity)
        assert (hold.state, hold.identity, hold.last) == before
        return
    assert hold.apply(event, identity) is hold.state is HOLD_TRANSITIONS[state, event]
    assert (hold.identity is not None) == (hold.state in WITH_EPOCH)
    if event in WITH_IDENTITY or event is HoldEvent.TIMED_OUT:
        assert hold.identity == NEXT
    elif hold.state in WITH_EPOCH | {HoldState.RELEASED}:
        assert hold.last == OURS


def test_every_state_of_the_hold_can_be_reached_and_left_except_lost() -> None:
    assert set(HOLD_TRANSITIONS.values()) == set(HoldState)
    for state in set(HoldState) - {HoldState.LOST}:
        assert {HOLD_TRANSITIONS.get((state, event), state) for event in HoldEvent} - {state}


@pytest.mark.parametrize("event", [event for event in HoldEvent if event is not HoldEvent.FENCED])
def test_who_has_lost_the_id_gets_it_back_by_nothing(event):
    assert (HoldState.LOST, event) not in HOLD_TRANSITIONS


@pytest.mark.parametrize("state", HoldState)
def test_only_an_epoch_under_which_the_ledger_was_read_and_no_end_was_sent_is_beyond_doubt(state):
    certain = {HoldState.NOBODY, HoldState.HELD, HoldState.LOST}
    assert hold_in(state).in_doubt == (state not in certain)


def test_who_let_go_of_an_epoch_knows_whose_the_id_was_and_does_not_name_it() -> None:
    hold = hold_in(HoldState.RELEASED)
    assert (hold.identity, hold.last) == (None, OURS)
    assert hold.apply(HoldEvent.EPOCH_REQUESTED) is HoldState.RELEASED


@pytest.mark.parametrize("state", [HoldState.HELD, HoldState.TAKEN, HoldState.UNCERTAIN, HoldState.RELEASED])
def test_a_look_before_the_id_is_taken_counts_instead_of_what_was_held(state):
    hold = hold_in(state)
    in_doubt = hold.in_doubt
    hold.apply(HoldEvent.LOOKED)
    assert (hold.identity, hold.last, hold.in_doubt) == (None, None, in_doubt)


def test_after_an_error_a_process_begins_in_doubt() -> None:
    hold = Hold(in_doubt=True)
    assert (hold.state, hold.identity, hold.in_doubt) == (HoldState.TAKING, None, True)
