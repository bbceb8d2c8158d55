"""The steps of a transaction: those of the specification (spec/SharedTransaction.tla), by name and by request."""

from __future__ import annotations

import re
import traceback
from collections import defaultdict
from pathlib import Path

import pytest

from lab.simulation.conditions import Conditions
from lab.simulation.history import live
from lab.simulation.network import ModelConnection
from lab.specification.timeline import ACTIONS
from spark_kafka_eos.appending.append import append
from spark_kafka_eos.kafka.protocol.transactions import add_partitions
from spark_kafka_eos.ledger.keeper import LedgerKeeper
from spark_kafka_eos.ledger.topic import LedgerTopic
from spark_kafka_eos.transaction.doubt import CommitDoubt
from spark_kafka_eos.transaction.owner import Owner
from spark_kafka_eos.transaction.steps import TransactionSteps

SPECIFICATION = Path(__file__).parents[3] / "spec" / "SharedTransaction.tla"
STEPS = {
    "Describes": TransactionSteps.describe,
    "Glances": LedgerKeeper.glance,
    "AsksIfHeld": Owner.ask_if_held,
    "Fences": TransactionSteps.fence,
    "Takes": TransactionSteps.take,
    "LooksAgain": Owner.look_again,
    "Reads": TransactionSteps.read,
    "AddsPartitions": add_partitions,
    "Appends": append,
    "AppendsEntry": LedgerTopic.append_entry,
    "CommitsOffsets": LedgerKeeper._commit_offsets,
    "Commits": TransactionSteps.commit,
    "Doubts": CommitDoubt.doubt,
    "AsksWhy": Owner.ask_why,
    "Aborts": TransactionSteps.abort,
}
# Actions that are no step of their own: the ledger's partition and group are added one by one, before entry and
# offsets; a commit is given up when the budget of its request is spent; Spark notes the batch.
WITHIN = {"AddsLedger": ("AppendsEntry", "CommitsOffsets"), "GivesUp": ("Commits",), "Notes": ()}
# Partitions of the output are added where the first block for them is appended, others by the ledger and the fence.
ALSO = {"Appends": ("AddsPartitions",)}
CHANGES = {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn"}


def words(name):
    return re.findall(r"[A-Z][a-z]*", name)


def imperative(action):
    verb, *others = words(action)
    return "_".join([verb.removesuffix("s"), *others]).lower()


def actions():
    """Those of a run, in the specification's `Step`."""
    (definition,) = re.findall(r"^Step\(r\) ==\n(.*?)\n\n", SPECIFICATION.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"(\w+)\(r\)", definition)


def test_each_action_of_a_run_is_a_step_of_the_same_name():
    assert set(actions()) == STEPS.keys() | WITHIN.keys()
    assert {action: step.__name__.lstrip("_") for action, step in STEPS.items()} == {
        action: imperative(action) for action in STEPS
    }


def requests_of(action):
    """Those that the action is, as the timelines of TLC's behaviours name them."""
    return protocol(re.findall(r"\w+(?:\(\w+\))?", ACTIONS[action].partition(":")[0]))


def protocol(requests):
    """The requests of the transaction among these; to the specification, a group is added as a partition is."""
    normal = {"AddOffsetsToTxn": "AddPartitionsToTxn"}
    return {normal.get(api, api) for api in requests if api.partition("(")[0] in CHANGES | {"DescribeTransactions"}}


@pytest.fixture(scope="module")
def sent():
    """The requests of each step in simulated histories, of which none is sent outside of a step."""
    requests = defaultdict(set)
    by_code = {step.__code__: action for action, step in STEPS.items() if action not in ("Describes", "AddsPartitions")}
    send = ModelConnection.send

    def recorded(self, request, **options):
        api = request.name.removesuffix("Request")
        if api == "EndTxn":
            api = f"EndTxn({'commit' if request.committed else 'abort'})"
        callers = [frame.f_code for frame, _ in traceback.walk_stack(None)]
        question = "Describes" if TransactionSteps.describe.__code__ in callers else ""
        requests[next((by_code[code] for code in callers if code in by_code), question)].add(api)
        return send(self, request, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelConnection, "send", recorded)
        usual, late = Conditions(), Conditions(late=True, verification=False)
        # In the last one, a commit is not answered for longer than it is sent again.
        for seed, conditions in [(seed, kind) for kind in (usual, late) for seed in range(30)] + [(249, usual)]:
            assert not live(seed, conditions=conditions).wrong
    return requests


def test_each_step_sends_what_the_action_of_its_name_sends(sent):
    for action in STEPS.keys() - {"Glances", "Reads", "AddsPartitions"}:
        expected = requests_of(action).union(*(requests_of(other) for other in ALSO.get(action, ())))
        expected |= {api for other, within in WITHIN.items() if action in within for api in requests_of(other)}
        assert protocol(sent[action]) == expected, action


def test_nothing_that_changes_a_transaction_is_sent_outside_of_a_step(sent):
    assert not {api for api in sent[""] if api.partition("(")[0] in CHANGES}


def test_the_ledger_is_read_before_and_after_the_id_is_taken(sent):
    assert "OffsetFetch" in sent["Glances"] & sent["Reads"]
