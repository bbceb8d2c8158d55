"""What TLC prints, and what a person reads."""

from __future__ import annotations

import pytest

from lab.specification.timeline import steps_of, timeline
from lab.specification.tlc import result_of
from lab.specification.values import parse
from spark_kafka_eos.errors import ToolFailed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("TRUE", True),
        ('"CompleteCommit"', "CompleteCommit"),
        ("<<>>", ()),
        ('<<"", -1>>', ("", -1)),
        ("{1, 2}", frozenset({1, 2})),
        ("[a |-> 1, b |-> [c |-> <<{}>>]]", {"a": 1, "b": {"c": (frozenset(),)}}),
        ("{[a |-> {1}]}", frozenset({(("a", frozenset({1})),)})),
    ],
)
def test_a_value_of_tlc_is_one_of_python(text, value):
    read = parse(text)
    if isinstance(read, frozenset):
        read = frozenset(tuple(item.items()) if isinstance(item, dict) else item for item in read)
    assert read == value


@pytest.mark.parametrize("text", ["[a 1]", "<<1>> 2", "[a |-> 1"])
def test_what_is_not_a_value_is_refused(text):
    with pytest.raises((ValueError, IndexError)):
        parse(text)


RUN = '[at |-> "{at}", why |-> "", epoch |-> {epoch}, batch |-> 1]'
LOG = "[pending |-> <<>>, visible |-> <<>>]"
STATE = """/\\ checkpoints = <<[plan |-> <<1>>, done |-> 0, start |-> 0]>>
/\\ late = {{}}
/\\ harmed = FALSE
/\\ run = <<{run}>>
/\\ kafka = [state |-> "Empty", epoch |-> {epoch}, log |-> <<{log}, {log}, {log}>>]
"""


def _state(at: str, epoch: int) -> str:
    return STATE.format(run=RUN.format(at=at, epoch=epoch), epoch=epoch, log=LOG)


def test_a_step_says_who_did_what_and_what_that_changed():
    output = (
        f"State 1: <Initial predicate>\n{_state('init', -1)}\n"
        f"State 2: <Takes line 1, col 1 to line 2, col 2 of module SharedTransaction>\n{_state('read', 0)}\n"
    )
    (line,) = timeline(steps_of(output))
    assert line.split(maxsplit=3) == [
        "1", "run", "1", "InitProducerId; has epoch 0; next: read; coordinator: Empty, epoch 0",
    ]  # fmt: skip


TABLE = """/\\ know = <<[version |-> {version}]>>
/\\ table = [version |-> {version}, log |-> <<{log}>>]
"""


def test_a_step_of_the_table_says_what_got_into_it():
    token = "[rows |-> <<<<1>>, <<>>>>, batch |-> 1, epoch |-> 0]"
    output = (
        f"State 1: <Initial predicate>\n{_state('commit', 0)}{TABLE.format(version=1, log='')}\n"
        f"State 2: <CommitsTable line 1>\n{_state('commit', 0)}{TABLE.format(version=2, log=token)}\n"
        f"State 3: <CommitsAlso line 1>\n{_state('note', 0)}{TABLE.format(version=2, log=token)}\n"
    )
    assert [line.split(maxsplit=3)[1:] for line in timeline(steps_of(output))] == [
        ["run", "1", "the table's commit; table: version 2; table: [1] for out-0, token: batch 1, epoch 0"],
        ["run", "1", "EndTxn(commit); next: note batch 1"],
    ]


def test_a_violation_and_the_end_of_all_states_are_told_apart():
    counted = "12 states generated, 7 distinct states found, 0 states left on queue."
    assert result_of(f"Error: Invariant InOrder is violated.\n{counted}", 1.0).violated == "InOrder"
    whole = result_of(f"Model checking completed. No error has been found.\n{counted}", 1.0)
    assert (whole.violated, whole.distinct) == (None, 7)


@pytest.mark.parametrize(
    "output", ["", "Error: parse error", "12 states generated, 7 distinct states found, 3 states left on queue."]
)
def test_tlc_that_did_not_finish_proves_nothing(output):
    with pytest.raises(ToolFailed, match="did not finish"):
        result_of(output, 1.0)
