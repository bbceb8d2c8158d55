import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.errors import IllegalTransactionState
from spark_kafka_eos.transaction.attempt import TRANSITIONS, Event, State, Transaction

BEGIN = [Event.INITIALISED, Event.LEDGER_READ, Event.APPEND]
UP_TO_COMMIT = [*BEGIN, Event.ALL_APPENDED, Event.OFFSETS_SENT, Event.COMMIT]


def after(*events: Event) -> Transaction:
    transaction = Transaction()
    for event in events:
        transaction.apply(event)
    return transaction


def refuses(transaction: Transaction, event: Event) -> IllegalTransactionState:
    before = transaction.state
    with pytest.raises(IllegalTransactionState) as raised:
        transaction.apply(event)
    assert transaction.state is before
    return raised.value


def test_a_transaction_commits_and_the_next_epoch_begins_another() -> None:
    transaction = after(*UP_TO_COMMIT, Event.COMMIT_ANSWERED)
    assert transaction.apply(Event.NEXT_EPOCH) is State.READY
    assert transaction.apply(Event.APPEND) is State.APPENDING


@pytest.mark.parametrize(
    ("progress", "committed"),
    [
        (BEGIN, "nothing"),
        (UP_TO_COMMIT, "unknown"),
        ([*UP_TO_COMMIT, Event.COMMIT_ANSWERED], "everything"),
        ([*UP_TO_COMMIT, Event.COMMIT_IN_DOUBT], "unknown"),
        ([*UP_TO_COMMIT, Event.COMMIT_ANSWERED, Event.NEXT_EPOCH], "nothing"),
        ([*BEGIN, Event.FENCED], "unknown"),
    ],
)
def test_the_state_tells_what_an_error_must_say_of_the_commit(progress: list[Event], committed: str) -> None:
    assert after(*progress).committed == committed


def test_on_older_brokers_each_batch_initialises_and_reads_the_ledger() -> None:
    transaction = after(*UP_TO_COMMIT, Event.COMMIT_ANSWERED, Event.INITIALISED)
    refuses(transaction, Event.APPEND)
    transaction.apply(Event.LEDGER_READ)
    assert transaction.apply(Event.APPEND) is State.APPENDING


@pytest.mark.parametrize("progress", [BEGIN, UP_TO_COMMIT[:4], UP_TO_COMMIT[:5]])
def test_a_new_epoch_aborts_an_open_transaction_until_its_commit_is_sent(progress: list[Event]) -> None:
    transaction = after(*progress, Event.INITIALISED)
    assert transaction.committed == "nothing"
    refuses(transaction, Event.APPEND)
    refuses(transaction, Event.COMMIT)


@pytest.mark.parametrize(
    "state", [State.COMMITTING, State.UNKNOWN, State.DECIDING, State.DECIDED, State.COMMITTED, State.OVER]
)
def test_what_may_be_committed_or_is_over_is_never_aborted(state: State) -> None:
    assert (state, Event.ABORT) not in TRANSITIONS


def test_appending_needs_an_identity() -> None:
    refuses(Transaction(), Event.APPEND)


def test_the_ledger_cannot_be_read_before_the_identity_is_held() -> None:
    assert "older producer" in str(refuses(Transaction(), Event.LEDGER_READ))


def test_nothing_is_appended_before_the_ledger_was_read() -> None:
    assert "read the ledger first" in str(refuses(after(Event.INITIALISED), Event.APPEND))


def test_a_commit_before_the_barrier_is_illegal() -> None:
    refuses(after(*BEGIN), Event.COMMIT)


def test_a_commit_without_the_ledger_entry_is_illegal() -> None:
    assert "ledger entry" in str(refuses(after(*BEGIN, Event.ALL_APPENDED), Event.COMMIT))


def test_offsets_before_the_barrier_are_illegal() -> None:
    refuses(after(*BEGIN), Event.OFFSETS_SENT)


def test_an_append_after_the_barrier_is_illegal() -> None:
    refuses(after(*BEGIN, Event.ALL_APPENDED), Event.APPEND)
    refuses(after(*BEGIN, Event.ALL_APPENDED, Event.OFFSETS_SENT), Event.APPEND)


def test_a_sent_commit_must_be_answered_before_a_new_epoch() -> None:
    error = refuses(after(*UP_TO_COMMIT), Event.INITIALISED)
    assert error.committed == "unknown"


def test_an_unknown_commit_is_not_sent_again_by_hand() -> None:
    refuses(after(*UP_TO_COMMIT, Event.COMMIT_IN_DOUBT), Event.COMMIT)


def test_after_an_unknown_commit_a_new_epoch_must_read_the_ledger_before_it_appends() -> None:
    transaction = after(*UP_TO_COMMIT, Event.COMMIT_IN_DOUBT)
    refuses(transaction, Event.LEDGER_READ)
    refuses(transaction, Event.NEXT_EPOCH)
    transaction.apply(Event.INITIALISED)
    refuses(transaction, Event.APPEND)
    assert transaction.apply(Event.LEDGER_READ) is State.READY


TO_TABLE = [*UP_TO_COMMIT[:5], Event.TABLE_COMMIT]


@pytest.mark.parametrize(
    ("progress", "committed"), [(TO_TABLE, "unknown"), ([*TO_TABLE, Event.TABLE_COMMITTED], "table")]
)
def test_once_the_table_may_have_the_batch_nothing_aborts_its_transaction(
    progress: list[Event], committed: str
) -> None:
    transaction = after(*progress)
    assert "aborts the transaction" in str(refuses(transaction, Event.INITIALISED))
    assert transaction.committed == committed


def test_a_batch_that_the_table_may_have_is_not_committed_before_that_is_known() -> None:
    refuses(after(*TO_TABLE), Event.COMMIT_ANSWERED)


@pytest.mark.parametrize("end", [[Event.TABLE_REFUSED], [Event.TABLE_COMMITTED, Event.TIMED_OUT]])
def test_a_transaction_whose_table_refused_or_that_timed_out_needs_a_new_epoch(end: list[Event]) -> None:
    transaction = after(*TO_TABLE, *end)
    for event in (Event.COMMIT, Event.APPEND, Event.TABLE_COMMIT):
        refuses(transaction, event)
    assert transaction.apply(Event.INITIALISED) is State.INITIALISED


def test_a_committed_epoch_appends_nothing_more() -> None:
    refuses(after(*UP_TO_COMMIT, Event.COMMIT_ANSWERED), Event.APPEND)


@pytest.mark.parametrize("state", State)
def test_a_fenced_owner_stops_in_any_state(state: State) -> None:
    assert TRANSITIONS[state, Event.FENCED] is State.FENCED


@pytest.mark.parametrize("event", [event for event in Event if event is not Event.FENCED])
def test_being_fenced_is_final(event: Event) -> None:
    refuses(after(Event.INITIALISED, Event.FENCED), event)


def test_an_illegal_move_names_both_sides_and_survives_pickling() -> None:
    error = refuses(after(*UP_TO_COMMIT), Event.APPEND)
    assert "APPEND" in str(error)
    assert "COMMITTING" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_every_state_can_be_reached_and_left_except_fenced() -> None:
    assert set(TRANSITIONS.values()) | {State.UNINITIALISED} == set(State)
    for state in set(State) - {State.FENCED}:
        assert any(source is state and target is not state for (source, _), target in TRANSITIONS.items())


# Mostly the next legal events, so that random walks get deep into the table.
@st.composite
def walks(draw: st.DrawFn) -> list[tuple[State, Event, State]]:
    transaction, walk = Transaction(), []
    for _ in range(draw(st.integers(0, 40))):
        legal = [event for event in Event if (transaction.state, event) in TRANSITIONS and event is not Event.FENCED]
        anything = not legal or draw(st.integers(0, 9)) == 0
        event: Event = draw(st.sampled_from(list(Event) if anything else legal))
        before = transaction.state
        if (before, event) in TRANSITIONS:
            walk.append((before, event, transaction.apply(event)))
        else:
            refuses(transaction, event)
    return walk


@given(walks())
def test_no_walk_breaks_a_rule_of_the_transaction(walk: list[tuple[State, Event, State]]) -> None:
    appended = committing = ledger_known = in_table = False
    for _, event, _ in walk:
        if event is Event.TABLE_COMMIT:  # it may have the batch
            in_table = True
        if event in (Event.TABLE_REFUSED, Event.COMMIT_ANSWERED, Event.TIMED_OUT):
            in_table = False
        if event in (Event.INITIALISED, Event.NEXT_EPOCH):
            assert not (event is Event.NEXT_EPOCH and committing)
            assert not in_table
            appended = committing = False
            ledger_known = event is Event.NEXT_EPOCH and ledger_known
        if event in (Event.LEDGER_READ, Event.COMMIT_ANSWERED):  # our own commit is the last one
            ledger_known = True
        if event is Event.APPEND:
            assert ledger_known
            assert not appended
            appended = True
        if event in (Event.COMMIT, Event.TABLE_COMMITTED):
            assert appended
            committing = True
        if event is Event.COMMIT_ANSWERED:
            assert committing
        if event in (Event.COMMIT_ANSWERED, Event.TIMED_OUT):
            committing = False
        if event is Event.COMMIT_IN_DOUBT:
            ledger_known = False
