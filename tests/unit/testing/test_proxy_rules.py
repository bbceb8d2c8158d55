"""The proxy's rules: how they are spelt, and which requests they are about."""

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.proxy_rules import Action, Rule, parse_rule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("EndTxn:drop-response", Rule(api="EndTxn", action=Action.DROP_RESPONSE)),
        ("EndTxn:1:drop-response", Rule(api="EndTxn", action=Action.DROP_RESPONSE)),
        ("Produce:3:cut-request", Rule(api="Produce", first=3, last=3, action=Action.CUT_REQUEST)),
        ("Produce:2-4:hold", Rule(api="Produce", first=2, last=4, action=Action.HOLD)),
        ("Produce:2-:duplicate", Rule(api="Produce", first=2, last=None, action=Action.DUPLICATE)),
        ("*:*:cut-response", Rule(first=1, last=None, action=Action.CUT_RESPONSE)),
        ("Fetch@reader-?:delay=0.25", Rule(api="Fetch", client="reader-?", action=Action.DELAY, seconds=0.25)),
        ("EndTxn:error=51", Rule(api="EndTxn", action=Action.ERROR, code=51)),
        ("EndTxn:error-after=NOT_COORDINATOR", Rule(api="EndTxn", action=Action.ERROR_AFTER, code=16)),
        ("EndTxn:error=-1", Rule(api="EndTxn", action=Action.ERROR, code=-1)),
    ],
)
def test_a_rule_is_api_client_count_and_action(text, rule):
    assert parse_rule(text) == rule
    assert parse_rule(str(rule)) == rule, "what it shows is what it takes"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a rule"),
        ("EndTxn", "is not a rule"),
        ("EndTxn:0:hold", "is not a rule"),
        ("EndTx:hold", "unknown API 'EndTx'"),
        ("EndTxn:lose", "unknown action 'lose'"),
        ("EndTxn:3-2:hold", "the range 3 to 2 is empty"),
        ("EndTxn:delay", "delay requires =SECONDS"),
        ("EndTxn:delay=soon", "delay requires =SECONDS"),
        ("EndTxn:error", "error requires =CODE"),
        ("EndTxn:error=OOPS", "error requires =CODE"),
        ("EndTxn:hold=1", "hold does not have a value"),
    ],
)
def test_anything_else_is_refused_saying_why(text, said):
    with pytest.raises(ToolFailed, match=said):
        parse_rule(text)


def test_a_rule_covers_its_api_and_the_clients_of_its_pattern():
    rule = Rule(api="EndTxn", client="driver-*", action=Action.HOLD)
    assert rule.covers("EndTxn", "driver-7")
    assert not rule.covers("EndTxn", "executor")
    assert not rule.covers("Produce", "driver-7")
    assert Rule(action=Action.HOLD).covers("Produce", "")


@pytest.mark.parametrize(
    ("first", "last", "due"), [(1, 1, [1]), (3, 3, [3]), (2, 4, [2, 3, 4]), (4, None, [4, 5, 6]), (7, 8, [])]
)
def test_it_is_due_within_its_count(first, last, due):
    rule = Rule(action=Action.HOLD, first=first, last=last)
    assert [number for number in range(1, 7) if rule.due(number)] == due
