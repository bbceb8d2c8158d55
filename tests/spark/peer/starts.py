"""Where a stream starts, and that it goes on from there (KafkaMicroBatchSourceSuite): for each way to say what to read
and where to start, with and without failOnDataLoss.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from tests.spark.peer.batch_reads import everywhere
from tests.spark.peer.case import Refusal, case
from tests.spark.peer.connector import Connector, Query, values

SUITE = "KafkaMicroBatchSourceSuite"
EARLIER = 1_700_000_000_000
LATER = EARLIER + 1_000

SELECTIONS: dict[str, Callable[[str], dict[str, str]]] = {
    "assign": lambda topic: {"assign": json.dumps({topic: [0, 1, 2, 3, 4]})},
    "subscribe": lambda topic: {"subscribe": topic},
    "subscribePattern": lambda topic: {"subscribePattern": f"{topic.removesuffix('-suffix')}-.*"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """`fill` makes a topic of five partitions; `options` start a query there, which reads `expected` of it."""

    option: str
    fill: Callable[[Connector, str], None]
    options: Callable[[str], dict[str, str]]
    expected: tuple[int, ...]


def _each_three(connector: Connector, topic: str) -> None:
    for partition, content in enumerate(([-20, -21, -22], [-10, -11, -12], [0, 1, 2], [10, 11, 12], [20, 21, 22])):
        connector.send(topic, [b"%d" % number for number in content], partition=partition)


def _at_two_times(connector: Connector, topic: str) -> None:
    """Three records in each partition; in the last one, none has the later time."""
    for timestamp, contents in (
        (EARLIER, ([-20], [-10], [0, 1], [10, 11], [20, 21, 22])),
        (LATER, ([-21, -22], [-11, -12], [2], [12], [])),
    ):
        for partition, content in enumerate(contents):
            records = [b"%d" % number for number in content]
            connector.send(topic, records, partition=partition, timestamp=timestamp)


def _all_at_the_later_time(connector: Connector, topic: str) -> None:
    _at_two_times(connector, topic)
    connector.send(topic, values(23, 25), partition=4, timestamp=LATER)


STARTS = {
    "latest": Start(
        option="startingOffsets",
        fill=lambda connector, topic: connector.send(topic, [b"-1"]),
        options=lambda topic: {"startingOffsets": "latest"},
        expected=(),
    ),
    "earliest": Start(
        option="startingOffsets",
        fill=_each_three,
        options=lambda topic: {"startingOffsets": "earliest"},
        expected=(-22, -21, -20, -12, -11, -10, 0, 1, 2, 10, 11, 12, 20, 21, 22),
    ),
    "offsets": Start(
        option="startingOffsets",
        fill=_each_three,
        options=lambda topic: {"startingOffsets": everywhere(topic, -2, -1, 0, 1, 2)},
        expected=(-22, -21, -20, 0, 1, 2, 11, 12, 22),
    ),
    "times_of_partitions": Start(
        option="startingOffsetsByTimestamp",
        fill=_at_two_times,
        options=lambda topic: {"startingOffsetsByTimestamp": everywhere(topic, LATER, LATER, LATER, LATER, EARLIER)},
        expected=(-22, -21, -12, -11, 2, 12, 20, 21, 22),
    ),
    "a_time": Start(
        option="startingTimestamp",
        fill=_all_at_the_later_time,
        options=lambda topic: {"startingTimestamp": f"{LATER}"},
        expected=(-22, -21, -12, -11, 2, 12, 23, 24),
    ),
}


def _topic(connector: Connector, start: Start) -> str:
    topic = connector.topic(*[[]] * 5, name=f"{connector.name()}-suffix")
    start.fill(connector, topic)
    return topic


def goes_on(selection: str, name: str, fail_on_data_loss: bool) -> None:
    """Adds the case: the start, a restart, records that came in between, and for topics, partitions that were added."""
    start = STARTS[name]
    added = values(30, 33), values(40, 43), values(50, 53) if selection != "assign" else []
    everything = sorted([*start.expected, *(int(number) for content in added for number in content)])

    @case(
        SUITE,
        [[*start.expected], [*start.expected], everything],
        selection,
        start.option,
        "failOnDataLoss",
        sentence=f"a_stream_by_{selection}_from_{name}_goes_on_after_a_restart_with_failOnDataLoss={fail_on_data_loss}",
        in_every_run=(selection, name, fail_on_data_loss) == _IN_EVERY_RUN,
    )
    def run(connector: Connector) -> object:
        topic = _topic(connector, start)
        options = SELECTIONS[selection](topic) | start.options(topic)
        frame = connector.stream(topic, failOnDataLoss=f"{fail_on_data_loss}".lower(), **options)
        query = connector.query(frame).start()
        first = query.all()
        query.stop()
        again = query.start().all()
        query.stop()
        connector.send(topic, added[0], partition=1)
        query.start().all()
        connector.send(topic, added[1], partition=2)
        if added[2]:
            connector.add_partitions(topic, 7)
            connector.send(topic, added[2], partition=6)
        return [first, again, query.await_rows(len(everything))]


_IN_EVERY_RUN = ("subscribe", "offsets", True)
for selection in SELECTIONS:
    for name in STARTS:
        for fail_on_data_loss in (True, False):
            goes_on(selection, name, fail_on_data_loss)


def without_a_record(selection: str, option: str, strategy: str) -> None:
    """Adds the case of a start by a time that a partition has no record of."""
    expected = [-22, -21, -12, -11, 2, 12]
    if strategy == "latest":
        demand: object = [expected, sorted([*expected, 23, 24, 25])]
        here: object = demand
    else:
        demand = Refusal("No offset matched from request")
        here = Refusal("-4 has no record with this timestamp or a later one")

    @case(
        SUITE,
        demand,
        selection,
        option,
        "startingOffsetsByTimestampStrategy",
        here=here,
        sentence=f"a_stream_by_{selection}_from_a_{option}_without_a_record_with_the_strategy_{strategy or 'left_out'}",
    )
    def run(connector: Connector) -> object:
        topic = connector.topic(*[[]] * 5, name=f"{connector.name()}-suffix")
        _at_two_times(connector, topic)
        at = f"{LATER}" if option == "startingTimestamp" else everywhere(topic, *[LATER] * 5)
        given = {option: at} | ({"startingoffsetsbytimestampstrategy": strategy} if strategy else {})
        query: Query = connector.query(connector.stream(topic, **SELECTIONS[selection](topic) | given)).start()
        first = query.all()
        connector.send(topic, values(23, 26), partition=4, timestamp=LATER)
        return [first, query.all()]


for selection in ("subscribe", "subscribePattern"):
    for option in ("startingOffsetsByTimestamp", "startingTimestamp"):
        for strategy in ("", "error", "latest"):
            without_a_record(selection, option, strategy)
