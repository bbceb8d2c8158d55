"""Reading without sockets: the next request after an answer, a loss or an error, and the time that it may take."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_eos.errors import AuthorizationFailed, BrokerError, BrokerUnreachable, DataLoss, KafkaEosError
from spark_kafka_eos.kafka.fetching.fetch_plan import FetchPlan
from spark_kafka_eos.kafka.fetching.fetch_sizes import FetchSizes
from spark_kafka_eos.kafka.fetching.fetch_steps import (
    Answer,
    Arrival,
    Ask,
    EpochEndOffset,
    Fetched,
    FindBounds,
    Locate,
    PartitionLeader,
    ReadReplica,
    Receive,
    Refused,
    Wait,
)
from spark_kafka_eos.kafka.partitions import NO_END, OffsetRange, TopicPartition
from spark_kafka_eos.kafka.protocol.backoff import Budget
from spark_kafka_eos.kafka.wire.batch_header import RecordBatchHeader

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
TOPIC_ID, OTHER_ID = uuid.UUID(int=7), uuid.UUID(int=8)
PATIENCE_MS = 10_000
MIB = 1 << 20
LOST = BrokerUnreachable("broker:9092: the broker closed the connection")


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def budget(milliseconds, clock):
    return Budget(milliseconds=milliseconds, backoff_ms=100, backoff_max_ms=1_000, clock=clock, jitter=lambda: 0.5)


def sizes(most=50 << 20):
    return FetchSizes(fetch_max_bytes=most, max_partition_fetch_bytes=1 << 20)


def plan_of(clock, *ranges, topic_id=None, follows=False):
    wanted = [OffsetRange(partition=tp, start=start, end=end, topic_id=topic_id) for tp, start, end in ranges]
    return FetchPlan(wanted, sizes=sizes(), clock=clock, budget=budget, patience_ms=PATIENCE_MS, follows=follows)


def header(position, base_offset, next_offset, epoch=3):
    return RecordBatchHeader(
        position=position, base_offset=base_offset, batch_length=88, partition_leader_epoch=epoch, magic=2, crc=0,
        attributes=0, last_offset_delta=next_offset - base_offset - 1, base_timestamp=0, max_timestamp=0,
        producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=1,
    )  # fmt: skip


def fetched(partition, position, *bounds, last_stable_offset=1_000):
    """A part of a response with batches of these bounds."""
    batches = tuple(header(100 * number, *each) for number, each in enumerate(bounds))
    return Fetched(
        partition=partition,
        buffer=memoryview(bytes(100 * len(bounds))),
        batches=batches,
        aborted=(),
        next_offset=bounds[-1][1] if bounds else position,
        high_watermark=1_000,
        last_stable_offset=last_stable_offset,
    )


def leads(node=1, topic_id=TOPIC_ID):
    return PartitionLeader(node=node, leader_epoch=5, topic_id=topic_id)


def answer(parts=None, **fields):
    return Answer(address="broker:9092", parts=parts or {}, **fields)


def ten(ask, **fields):
    """Ten offsets of each part."""
    return answer(
        {
            part.partition: fetched(part.partition, part.position, (part.position, part.position + 10))
            for part in ask.parts
        },
        **fields,
    )


def instead(outcome):
    return lambda ask: answer({part.partition: outcome for part in ask.parts})


def empty(ask, **fields):
    """Nothing yet: the last stable offset is at the position."""
    return answer(
        {
            part.partition: fetched(part.partition, part.position, last_stable_offset=part.position)
            for part in ask.parts
        },
        **fields,
    )


def nothing_left(ask):
    """Nothing, although all offsets up to the end are stable."""
    return answer({part.partition: fetched(part.partition, part.position) for part in ask.parts})


def goes_on_at(offset):
    return lambda ask: answer(
        {part.partition: fetched(part.partition, part.position, (offset, offset + 5)) for part in ask.parts}
    )


def whole(code):
    return lambda ask: answer(error_code=code)


class Walk:
    """Does what a plan says, as written down; `steps` tells what that was, a word each.

    Of each kind of action the next event: an exception, or for Receive a function of what was asked.
    """

    def __init__(self, plan, clock, *, receive=(), ask=(), locate=(), bounds=()):
        self.plan, self.clock = plan, clock
        self.events = {Receive: list(receive), Ask: list(ask), Locate: list(locate), FindBounds: list(bounds)}
        self.steps, self.found, self.asked, self.waited = [], [], {}, []
        self.requests = []  # which broker, and whether with the rack

    def run(self):
        while (action := self.plan.next()) is not None:
            self.steps.append(self.word(action))
            match action:
                case Fetched():
                    self.found.append((action.partition, action.next_offset))
                case Wait():
                    self.waited.append(action.seconds)
                    self.clock.now += action.seconds
                case _:
                    self.do(action)
        return self

    def do(self, action):
        events = self.events[type(action)]
        event = events.pop(0) if events else None
        if isinstance(event, Exception):
            self.plan.failed(action, event)
            return
        match action:
            case Ask():
                self.asked[action.node] = action
                self.requests.append((action.node, action.with_rack))
            case Receive():
                node = action.nodes[0]
                self.plan.answered(node, (event or ten)(self.asked[node]))
            case Locate():
                self.plan.located(dict.fromkeys(action.partitions, event or leads()))
            case FindBounds():
                start, end = event or (0, 5)
                self.plan.bounded([OffsetRange(partition=tp, start=start, end=end) for tp in action.partitions])

    @staticmethod
    def word(action):
        match action:
            case Locate(outdated=outdated) if outdated:
                return "Locate!"
            case Wait(because=None):
                return "Pause"
            case Ask(is_peek=True):
                return "Peek"
            case _:
                return type(action).__name__


TO_THE_END = "Receive Ask Fetched Receive Fetched"
GOES_ON = f"Ask {TO_THE_END}"
ROWS = [
    ("it comes", {}, f"Locate {GOES_ON}"),
    ("nothing new", {"receive": [empty]}, f"Locate Ask Receive {GOES_ON}"),
    ("silence about a partition", {"receive": [lambda ask: answer()]}, f"Locate Ask Receive {GOES_ON}"),
    ("the connection is lost", {"receive": [LOST]}, f"Locate Ask Receive Wait Locate! {GOES_ON}"),
    ("nobody to be asked", {"ask": [LOST]}, f"Locate Ask Wait Locate! {GOES_ON}"),
    ("nobody knows the leader", {"locate": [LOST]}, f"Locate Wait Locate! {GOES_ON}"),
    ("another leader", {"receive": [instead(Refused(error_code=6))]}, f"Locate Ask Receive Wait Locate! {GOES_ON}"),
    ("the broker's own fault", {"receive": [instead(Refused(error_code=-1))]}, f"Locate Ask Receive Wait {GOES_ON}"),
    ("the same of the request", {"receive": [whole(-1)]}, f"Locate Ask Receive Wait {GOES_ON}"),
    ("an outdated topic id", {"receive": [whole(103)]}, f"Locate Ask Receive Wait Locate! {GOES_ON}"),
    (
        "a shorter log",
        {"receive": [instead(Refused(error_code=1))]},
        f"Locate Ask Receive FindBounds Wait Locate! {GOES_ON}",
    ),
    (
        "a shorter log, and nobody tells how short",
        {"receive": [instead(Refused(error_code=1))], "bounds": [LOST]},
        f"Locate Ask Receive FindBounds Wait Locate! {GOES_ON}",
    ),
    (
        "throttled, with nothing",
        {"receive": [lambda ask: answer(throttle_ms=500)]},
        f"Locate Ask Receive Pause {GOES_ON}",
    ),
    (
        "throttled, with data",
        {"receive": [lambda ask: ten(ask, throttle_ms=500)]},
        "Locate Ask Receive Fetched Pause Ask Receive Fetched",
    ),
    ("another topic id at first", {"locate": [leads(topic_id=OTHER_ID)]}, f"Locate Wait Locate! {GOES_ON}"),
]


@pytest.mark.parametrize(("events", "steps"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_event_has_its_next_steps(events, steps):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30), topic_id=TOPIC_ID), clock, **events).run()
    assert " ".join(walk.steps) == steps
    assert walk.found == [(FIRST, 20), (FIRST, 30)]


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (whole(42), BrokerError, "a request to broker:9092"),
        (instead(Refused(error_code=29)), AuthorizationFailed, "orders-0 at offset 10"),
        (instead(EpochEndOffset(epoch=2, end_offset=7)), DataLoss, "epoch 2 only up to 7"),
    ],
)
def test_what_no_retry_mends_is_raised_at_once(outcome, error, message):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[outcome])
    with pytest.raises(error, match=message):
        walk.run()
    assert walk.waited == []


def test_a_range_whose_last_records_are_gone_below_an_open_transaction_ends_where_that_one_begins():
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[ten, nothing_left, goes_on_at(30)]).run()
    assert " ".join(walk.steps) == "Locate Ask Receive Ask Fetched Receive Peek Receive"
    assert walk.found == [(FIRST, 20)], "what an open transaction wrote is handed to nobody"


@pytest.mark.parametrize("seen", [goes_on_at(29), nothing_left, LOST, instead(Refused(error_code=6))])
def test_a_range_is_not_over_unless_the_log_continues_after_it(seen):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[nothing_left, seen]).run()
    assert walk.found == [(FIRST, 20), (FIRST, 30)]


def test_a_range_whose_end_is_not_stable_yet_is_waited_for():
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[empty, goes_on_at(30)]).run()
    assert walk.found == [(FIRST, 35)]
    assert "Peek" not in walk.steps


@pytest.mark.parametrize(
    ("last_stable_offset", "steps"),
    [(20, "Locate Ask Receive Fetched Ask Receive"), (21, "Locate Ask Receive Ask Fetched Receive")],
)
def test_a_log_that_was_read_to_its_end_is_asked_on_only_when_the_reader_has_what_it_had(last_stable_offset, steps):
    def first(ask):
        return answer({FIRST: fetched(FIRST, 10, (10, 20), last_stable_offset=last_stable_offset)})

    def stop(ask):
        raise KeyboardInterrupt

    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 1 << 62), follows=True), clock, receive=[first, stop])
    with pytest.raises(KeyboardInterrupt):
        walk.run()
    assert " ".join(walk.steps) == steps


@pytest.mark.parametrize("trouble", [instead(Refused(error_code=6)), LOST])
def test_a_quiet_log_that_is_followed_uses_up_no_time_to_find_its_next_leader(trouble):
    clock = Clock()

    def quiet(ask):
        clock.now += PATIENCE_MS / 1e3
        return empty(ask)

    def stop(ask):
        raise KeyboardInterrupt

    walk = Walk(
        plan_of(clock, (FIRST, 10, NO_END), follows=True), clock, receive=[quiet, quiet, trouble, trouble, ten, stop]
    )
    with pytest.raises(KeyboardInterrupt):
        walk.run()
    assert walk.found == [(FIRST, 20)]


@pytest.mark.parametrize("trouble", [instead(Refused(error_code=6)), LOST])
def test_a_followed_log_that_nobody_serves_is_given_up_in_its_time(trouble):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, NO_END), follows=True), clock, receive=[empty, *[trouble] * 1_000])
    with pytest.raises(KafkaEosError):
        walk.run()
    assert 10 <= clock.now - 1_000 < 11.5


ENDLESS = 1_000


@pytest.mark.parametrize(
    ("events", "error", "seconds"),
    [
        ({"receive": [LOST] * ENDLESS}, BrokerUnreachable, 10),
        ({"locate": [LOST] * ENDLESS}, BrokerUnreachable, 10),
        ({"receive": [whole(-1)] * ENDLESS}, BrokerError, 10),
        ({"receive": [instead(Refused(error_code=1))] * ENDLESS}, DataLoss, 5),
        ({"locate": [leads(topic_id=OTHER_ID)] * ENDLESS}, DataLoss, 2),
    ],
)
def test_what_does_not_pass_is_raised_in_its_time(events, error, seconds):
    clock = Clock()
    with pytest.raises(error):
        Walk(plan_of(clock, (FIRST, 10, 30), topic_id=TOPIC_ID), clock, **events).run()
    assert seconds <= clock.now - 1_000 < seconds + 1.5


@pytest.mark.parametrize(("end", "said"), [(30, "30"), (NO_END, "the end")])
def test_records_that_were_deleted_are_lost_at_once(end, said):
    clock = Clock()
    walk = Walk(
        plan_of(clock, (FIRST, 10, end)),
        clock,
        receive=[instead(Refused(error_code=1))],
        bounds=[(11, 100)],
    )
    with pytest.raises(DataLoss, match=f"from 10 to {said} were planned, but the broker has 11 to 100"):
        walk.run()


def test_a_partition_out_of_range_with_unknown_bounds_is_requested_again():
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 40, 60)), clock, receive=[instead(Refused(error_code=1))], bounds=[LOST]).run()
    assert walk.found == [(FIRST, 50), (FIRST, 60)]


def test_received_records_are_returned_before_anything_that_may_fail():
    def half(ask):
        return answer({FIRST: fetched(FIRST, 0, (0, 10)), SECOND: Refused(error_code=1)})

    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 0, 10), (SECOND, 10, 30)), clock, receive=[half], bounds=[(20, 30)])
    with pytest.raises(DataLoss):
        walk.run()
    assert walk.found == [(FIRST, 10)]


def late(clock, seconds, event):
    """The same event after this number of seconds."""

    def after(ask):
        clock.now += seconds
        return event(ask)

    return after


@pytest.mark.parametrize(("event", "seconds"), [(whole(-1), 6), (instead(Refused(error_code=1)), 3)])
def test_progress_gives_all_the_time_again(event, seconds):
    clock = Clock()
    receive = [late(clock, seconds, event), ten] * 3
    walk = Walk(plan_of(clock, (FIRST, 0, 30)), clock, receive=receive).run()
    assert walk.found[-1] == (FIRST, 30)


def test_a_topic_that_is_itself_again_may_be_doubted_as_long_again():
    clock = Clock()
    other = [leads(topic_id=OTHER_ID)] * 4  # 1.5 s
    walk = Walk(
        plan_of(clock, (FIRST, 0, 10), topic_id=TOPIC_ID),
        clock,
        locate=[*other, leads(), *other[:2]],
        receive=[instead(Refused(error_code=100))],
    ).run()
    assert walk.found == [(FIRST, 10)]
    assert sum(walk.waited) > 2


def test_what_came_settles_which_topic_is_read():
    clock = Clock()
    walk = Walk(
        plan_of(clock, (FIRST, 0, 30)),
        clock,
        locate=[leads(topic_id=OTHER_ID)] + [leads()] * ENDLESS,
        receive=[ten, instead(Refused(error_code=100))],
    )
    with pytest.raises(DataLoss, match=f"offset 10: offsets up to 30 of topic id {OTHER_ID} were not read"):
        walk.run()


def located(plan, leaders):
    """The plan, past its first Locate, with partitions at these leaders."""
    action = plan.next()
    assert isinstance(action, Locate)
    plan.located({tp: leads(leaders[tp]) for tp in action.partitions})
    return plan


def asked(plan):
    """The requests that go out now, by leader."""
    found = {}
    while isinstance(action := plan.next(), Ask):
        found[action.node] = action
    return found, action


def test_every_leader_has_a_request_on_its_way():
    plan = located(plan_of(Clock(), (FIRST, 0, 20), (SECOND, 0, 20)), {FIRST: 1, SECOND: 2})
    requests, then = asked(plan)
    assert {leader: [part.partition for part in ask.parts] for leader, ask in requests.items()} == {
        1: [FIRST],
        2: [SECOND],
    }
    assert then == Receive(nodes=(1, 2))


def test_one_leaders_throttle_holds_no_other_up():
    clock = Clock()
    plan = located(plan_of(clock, (FIRST, 0, 20), (SECOND, 0, 40)), {FIRST: 1, SECOND: 2})
    requests, _ = asked(plan)
    plan.answered(1, ten(requests[1], throttle_ms=5_000))
    assert isinstance(plan.next(), Fetched)
    for left in (5, 4, 3, 2):
        assert plan.next() == Receive(nodes=(2,), seconds=left)
        clock.now += 1
        plan.answered(2, ten(requests[2]))
        requests, then = asked(plan)
        assert isinstance(then, Fetched)
    assert plan.next() == Wait(seconds=1.0, because=None)


NO_LEADER = replace(leads(), node=-1)


@pytest.mark.parametrize(
    ("outcome", "leader"),
    [(LOST, leads(1)), (Refused(error_code=6), NO_LEADER), (Refused(error_code=6), leads(1, topic_id=OTHER_ID))],
    ids=["its broker is down", "it has no leader", "its topic id is in doubt"],
)
def test_a_partition_that_is_retried_does_not_stop_the_others(outcome, leader):
    clock = Clock()
    plan = located(plan_of(clock, (FIRST, 0, 20), (SECOND, 0, 100_000), topic_id=TOPIC_ID), {FIRST: 1, SECOND: 2})
    requests, _ = asked(plan)
    if outcome is LOST:
        plan.failed(Receive(nodes=(1,)), outcome)
    else:
        plan.answered(1, answer({FIRST: outcome}))
    began, came = clock.now, 0
    while clock.now - began < 10 * PATIENCE_MS / 1000:
        match action := plan.next():
            case Wait() | Receive():
                clock.now += min(action.seconds, 0.05)  # the next answer of the other broker
                plan.answered(2, ten(requests[2]))
            case Fetched():
                came += 1
            case Locate(partitions=partitions):
                assert partitions == (FIRST,)
                plan.located({FIRST: leader})
            case Ask(node=1):
                plan.failed(action, LOST)
            case Ask():
                requests[2] = action
        if leader.topic_id != TOPIC_ID and clock.now - began > 1.5:
            break  # after 2 s it would be DataLoss
    assert came >= (clock.now - began) / 0.1, "one answer in 0.05 s, less what the first one waits for"


def test_a_partition_without_a_leader_is_an_error_if_nothing_else_comes():
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 0, 20)), clock, locate=[NO_LEADER] * ENDLESS)
    with pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE .* orders-0"):
        walk.run()
    assert PATIENCE_MS / 1000 <= clock.now - 1_000 < PATIENCE_MS / 1000 + 1.5


def test_a_partition_with_nothing_new_is_asked_for_after_the_others():
    partitions = [TopicPartition("orders", number) for number in range(300)]
    plan = plan_of(Clock(), *((tp, 0, 100_000) for tp in partitions))
    plan = located(plan, dict.fromkeys(partitions, 1))
    requests, _ = asked(plan)
    first = [part.partition for part in requests[1].parts]
    assert first == partitions[: len(first)]
    plan.answered(1, empty(requests[1]))
    requests, _ = asked(plan)
    assert requests[1].parts[0].partition == partitions[len(first)]


def test_a_throttle_ends_while_the_reader_works():
    clock = Clock()
    plan = located(plan_of(clock, (FIRST, 0, 20)), {FIRST: 1})
    requests, _ = asked(plan)
    plan.answered(1, ten(requests[1], throttle_ms=5_000))
    assert isinstance(plan.next(), Fetched)
    clock.now += 6
    assert isinstance(plan.next(), Ask)


def test_neither_the_readers_time_nor_a_brokers_throttle_counts():
    clock = Clock()
    plan = located(plan_of(clock, (FIRST, 0, 20)), {FIRST: 1})
    requests, _ = asked(plan)
    plan.answered(1, ten(requests[1], throttle_ms=60_000))
    assert isinstance(plan.next(), Fetched)
    clock.now += 3_600
    requests, _ = asked(plan)
    plan.answered(1, empty(requests[1], throttle_ms=60_000))
    assert plan.next() == Wait(seconds=60.0, because=None)
    clock.now += 60
    requests, _ = asked(plan)
    plan.answered(1, empty(requests[1]))
    requests, _ = asked(plan)
    clock.now += PATIENCE_MS / 1000
    with pytest.raises(DataLoss, match="broker:9092 returned no data for orders-0 from 10 to 20"):
        plan.answered(1, empty(requests[1]))


def throttling(clock, *, times, answers_after):
    """A plan whose leader has throttled it so often, and given nothing."""
    plan = located(plan_of(clock, (FIRST, 0, 20)), {FIRST: 1})
    for _ in range(times):
        requests, _ = asked(plan)
        clock.now += answers_after
        plan.answered(1, empty(requests[1], throttle_ms=60_000))
        assert plan.next() == Wait(seconds=60.0, because=None)
        clock.now += 60
    return plan


def test_a_broker_that_does_nothing_but_throttle_is_given_up_on_but_not_its_data():
    throttling(Clock(), times=70, answers_after=0.125)
    with pytest.raises(BrokerUnreachable, match="throttled this client and returned no data for orders-0 from 0 to 20"):
        throttling(Clock(), times=90, answers_after=0.125)


def test_only_silence_since_the_last_throttle_is_data_loss():
    clock = Clock()
    plan = throttling(clock, times=70, answers_after=0.125)
    for _ in range(9):
        requests, _ = asked(plan)
        clock.now += 1
        plan.answered(1, empty(requests[1]))
    requests, _ = asked(plan)
    clock.now += 1
    with pytest.raises(DataLoss, match="returned no data for orders-0 from 0 to 20"):
        plan.answered(1, empty(requests[1]))


def planned_in(epoch, clock):
    wanted = OffsetRange(partition=FIRST, start=0, end=10, topic_id=TOPIC_ID, leader_epoch=epoch)
    return FetchPlan([wanted], sizes=sizes(), clock=clock, budget=budget, patience_ms=PATIENCE_MS)


def test_a_leader_of_an_earlier_epoch_than_planned_is_not_asked():
    clock = Clock()
    plan = planned_in(7, clock)
    for epoch in (5, 6):
        assert isinstance(plan.next(), Locate)
        plan.located({FIRST: replace(leads(), leader_epoch=epoch)})
        clock.now += plan.next().seconds
    assert plan.next() == Locate(partitions=(FIRST,), outdated=frozenset({"orders"}))
    plan.located({FIRST: replace(leads(2), leader_epoch=7)})
    ask = plan.next()
    assert (ask.node, ask.parts[0].leader_epoch) == (2, 7)


def test_brokers_that_stay_outdated_are_given_up_on():
    clock = Clock()
    with pytest.raises(BrokerUnreachable, match="know the leader of epoch 5, but the range was planned with .* 7"):
        Walk(planned_in(7, clock), clock).run()


def answered_with(*batches, planned=5, leader=6, end=10, follows=False):
    """What comes of a range `[0, end)` that was planned in an epoch, if the leader of another one has these batches."""
    wanted = OffsetRange(partition=FIRST, start=0, end=end, topic_id=TOPIC_ID, leader_epoch=planned)
    clock = Clock()
    plan = FetchPlan([wanted], sizes=sizes(), clock=clock, budget=budget, patience_ms=PATIENCE_MS, follows=follows)
    assert isinstance(plan.next(), Locate)
    plan.located({FIRST: replace(leads(), leader_epoch=leader)})
    ask = plan.next()
    assert isinstance(ask, Ask)
    plan.answered(1, answer({FIRST: fetched(FIRST, 0, *batches)}))
    while not isinstance(step := plan.next(), Fetched):
        assert isinstance(step, Ask)
    return [(each.base_offset, each.next_offset) for each in step.batches]


@pytest.mark.parametrize(
    ("batches", "first"),
    [
        ([(0, 7, 5), (7, 9, 6)], 7),
        ([(0, 4, 4), (4, 5, 5), (5, 9, 6), (9, 12, 6)], 5),
        ([(0, 12, 6)], 0),
        ([(0, 9, -1), (9, 12, 6)], 9),
        ([(8, 12, 6)], 8),
    ],
)
def test_records_before_the_planned_end_that_are_of_a_later_leader_than_the_end_are_of_another_log(batches, first):
    with pytest.raises(DataLoss, match=f"orders-0: .* truncated .* up to 10 were planned: those from {first} on"):
        answered_with(*batches)


@pytest.mark.parametrize(
    ("batches", "given"),
    {
        "an election that lost nothing": ([(0, 7, 4), (7, 10, 5)], {}),
        "the log of the next leader comes after the end": ([(10, 15, 6)], {}),
        "a record batch that reaches past the end": ([(0, 15, 5)], {}),
        "formats without an epoch": ([(0, 10, -1)], {}),
        "brokers that tell no epoch": ([(0, 10, 6)], {"planned": -1, "leader": -1}),
        "a range planned without one": ([(0, 10, 6)], {"planned": -1}),
        "a service that keeps what producers have written there": ([(0, 10, 9)], {}),
        "a service whose leaders never change": ([(0, 10, 9)], {"leader": 5}),
        "a log that is followed": ([(0, 10, 6)], {"end": NO_END, "follows": True}),
    }.values(),
)
def test_what_an_election_without_a_loss_leaves_is_read(batches, given):
    assert answered_with(*batches, **given) == [batch[:2] for batch in batches]


def test_only_a_leader_says_that_its_log_is_another_one():
    clock = Clock()
    wanted = OffsetRange(partition=FIRST, start=0, end=10, topic_id=TOPIC_ID, leader_epoch=4)
    plan = FetchPlan([wanted], sizes=sizes(), clock=clock, budget=budget, patience_ms=PATIENCE_MS)

    def other(ask):
        return answer({FIRST: fetched(FIRST, 0, (0, 5, 4), (5, 10, 5))})

    def same(ask):
        return answer({FIRST: fetched(FIRST, 0, (0, 10, 4))})

    walk = Walk(plan, clock, receive=[TO_FOLLOWER, other, same]).run()
    assert (walk.found, walk.requests) == ([(FIRST, 10)], [(1, True), (2, True), (1, False)])


def test_a_partition_may_have_one_range_only():
    with pytest.raises(ValueError, match="one range"):
        plan_of(Clock(), (FIRST, 0, 20), (FIRST, 30, 40))


# -- a follower in the reader's rack

TO_FOLLOWER = instead(ReadReplica(node=2))
NO_RECORDS = [
    ("nothing new", {"receive": [TO_FOLLOWER, empty]}),
    ("silence about the partition", {"receive": [TO_FOLLOWER, lambda ask: answer()]}),
    ("REPLICA_NOT_AVAILABLE", {"receive": [TO_FOLLOWER, instead(Refused(error_code=9))]}),
    ("OFFSET_OUT_OF_RANGE", {"receive": [TO_FOLLOWER, instead(Refused(error_code=1))]}),
    ("OFFSET_NOT_AVAILABLE", {"receive": [TO_FOLLOWER, instead(Refused(error_code=78))]}),
    ("NOT_LEADER_OR_FOLLOWER", {"receive": [TO_FOLLOWER, instead(Refused(error_code=6))]}),
    ("TOPIC_AUTHORIZATION_FAILED", {"receive": [TO_FOLLOWER, instead(Refused(error_code=29))]}),
    ("a shorter epoch", {"receive": [TO_FOLLOWER, instead(EpochEndOffset(epoch=2, end_offset=7))]}),
    ("another replica", {"receive": [TO_FOLLOWER, instead(ReadReplica(node=3))]}),
    ("an error of the request", {"receive": [TO_FOLLOWER, whole(42)]}),
    ("the connection is lost", {"receive": [TO_FOLLOWER, LOST]}),
    ("it cannot be asked", {"receive": [TO_FOLLOWER], "ask": [None, LOST]}),
]


def test_the_leader_may_send_the_reader_to_a_follower_which_is_asked_to_the_end():
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 40)), clock, receive=[TO_FOLLOWER]).run()
    assert walk.requests == [(1, True), (2, True), (2, True), (2, True)]
    assert walk.found == [(FIRST, 20), (FIRST, 30), (FIRST, 40)]


@pytest.mark.parametrize("events", [row[1] for row in NO_RECORDS], ids=[row[0] for row in NO_RECORDS])
def test_a_follower_that_returns_no_records_sends_the_reader_back_to_the_leader(events):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, **events).run()
    asked = [request for request in walk.requests if request[0] == 1 or "ask" not in events]
    assert asked in ([(1, True), (2, True), (1, False), (1, False)], [(1, True), (1, False), (1, False)])
    assert walk.found == [(FIRST, 20), (FIRST, 30)]


def no_room_for_the_second(ask, *, lacking=0, size=MIB, stable=1_000):
    """A response that is full with the first partition, so that nothing, or only a part, of the other one's came."""
    first, second = ask.parts
    return answer(
        {
            first.partition: fetched(first.partition, first.position, (first.position, first.position + 10)),
            second.partition: replace(
                fetched(second.partition, second.position, last_stable_offset=stable), lacking=lacking
            ),
        },
        arrival=Arrival(size=size, seconds=0.6),
    )


@pytest.mark.parametrize(
    "full", [no_room_for_the_second, partial(no_room_for_the_second, lacking=200, size=400)], ids=["no", "a part"]
)
def test_a_follower_whose_answer_had_no_room_for_a_partition_is_asked_again(full):
    clock = Clock()
    walk = Walk(plan_of(clock, (FIRST, 10, 30), (SECOND, 10, 30)), clock, receive=[TO_FOLLOWER, full]).run()
    assert {node for node, _ in walk.requests[1:]} == {2}
    assert sorted(walk.found) == [(FIRST, 20), (FIRST, 30), (SECOND, 20), (SECOND, 30)]


def test_a_follower_that_lacks_what_the_leader_has_of_a_partition_is_not_asked_for_it_again():
    clock = Clock()
    receive = [TO_FOLLOWER, partial(no_room_for_the_second, stable=10)]
    walk = Walk(plan_of(clock, (FIRST, 10, 30), (SECOND, 10, 30)), clock, receive=receive).run()
    assert {node for node, _ in walk.requests[1:]} == {1, 2}
    assert sorted(walk.found) == [(FIRST, 20), (FIRST, 30), (SECOND, 20), (SECOND, 30)]


def test_a_follower_that_has_nothing_of_the_first_partition_that_it_is_asked_for_is_given_up():
    clock = Clock()
    nothing_but_full = lambda ask: replace(nothing_left(ask), arrival=Arrival(size=MIB, seconds=0.6))  # noqa: E731
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[TO_FOLLOWER, nothing_but_full]).run()
    assert walk.requests[:3] == [(1, True), (2, True), (1, False)]


def test_the_leader_is_given_the_rack_again_after_a_while():
    clock = Clock()
    receive = [TO_FOLLOWER, empty, late(clock, 31, ten), TO_FOLLOWER]
    walk = Walk(plan_of(clock, (FIRST, 10, 50)), clock, receive=receive).run()
    # The request after the late answer was sent before that answer was handed over.
    assert walk.requests[:5] == [(1, True), (2, True), (1, False), (1, True), (2, True)]
    assert walk.found[-1] == (FIRST, 50)


def test_the_leader_chooses_again_after_metadata_max_age():
    clock = Clock()
    receive = [TO_FOLLOWER, late(clock, 301, ten), instead(ReadReplica(node=3))]
    walk = Walk(plan_of(clock, (FIRST, 10, 40)), clock, receive=receive).run()
    assert walk.requests == [(1, True), (2, True), (1, True), (3, True), (3, True)]


def test_a_follower_without_records_is_no_data_loss_however_long_it_took():
    clock = Clock()
    receive = [TO_FOLLOWER, late(clock, PATIENCE_MS, empty)]
    walk = Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=receive).run()
    assert walk.found == [(FIRST, 20), (FIRST, 30)]


def test_brokers_that_send_the_reader_to_and_fro_are_given_up_on_in_time():
    clock = Clock()
    with pytest.raises(BrokerUnreachable, match="orders-0: the follower that the leader prefers .* names replica 2"):
        Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=[TO_FOLLOWER] * 1_000).run()
    assert 10 <= clock.now - 1_000 < 11.5


def test_a_leader_that_insists_on_a_broken_follower_is_given_up_on_in_time():
    clock = Clock()
    receive = [TO_FOLLOWER, instead(Refused(error_code=1))] * 1_000
    with pytest.raises(BrokerUnreachable, match="orders-0: the follower that the leader prefers"):
        Walk(plan_of(clock, (FIRST, 10, 30)), clock, receive=receive).run()
    assert 10 <= clock.now - 1_000 < 11.5


# -- whatever happens

PASSING = [-1, 3, 6, 9, 56, 74, 75, 78, 100]
LEADERS = st.integers(1, 3)


class Anything:
    """A cluster that does what `draw` says until `faults` are used up, and then what it should."""

    def __init__(self, draw, logs):
        self.draw, self.clock = draw, Clock()
        self.logs = logs  # each partition's batches, as bounds of offsets
        self.ranges = {tp: (batches[0][0], batches[-1][1]) for tp, batches in logs.items()}
        self.faults = draw(st.integers(0, 25))
        self.plan = plan_of(self.clock, *((tp, *bounds) for tp, bounds in self.ranges.items()), topic_id=TOPIC_ID)
        self.found: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in logs}
        self.in_flight: dict[int, Ask] = {}
        self.counted = 0.0

    def chance(self):
        if not self.faults or not self.draw(st.booleans()):
            return False
        self.faults -= 1
        return True

    def passes(self, seconds):
        self.clock.now += seconds
        self.counted += seconds

    def run(self):
        while (action := self.plan.next()) is not None:
            match action:
                case Fetched():
                    self.found[action.partition] += [(each.base_offset, each.next_offset) for each in action.batches]
                    self.clock.now += self.draw(st.sampled_from([0, 0, 3_600]))
                case Wait(because=None):
                    self.clock.now += action.seconds
                case Wait():
                    self.passes(action.seconds)
                case _:
                    self.passes(self.draw(st.sampled_from([0, 0.01, 0.5, 3])) if self.faults else 0)
                    self.do(action)

    def do(self, action):
        fails = self.chance()
        match action:
            case Ask(node=leader):
                assert leader not in self.in_flight, "one request at a time"
                flying = {part.partition for ask in self.in_flight.values() for part in ask.parts}
                assert not flying & {part.partition for part in action.parts}
                if not fails:
                    self.in_flight[leader] = action
            case Receive(nodes=nodes, seconds=seconds):
                if seconds < 10 and not fails and self.chance():
                    self.passes(seconds)  # nothing comes in time
                    return
                leader = self.draw(st.sampled_from(nodes))
                ask = self.in_flight.pop(leader)
                action = Receive(nodes=(leader,))
                if not fails:
                    self.plan.answered(leader, self.answer(ask))
            case Locate(partitions=partitions) if not fails:
                self.plan.located({tp: self.leader() for tp in partitions})
            case FindBounds(partitions=partitions) if not fails:
                self.plan.bounded([OffsetRange(partition=tp, start=0, end=5) for tp in partitions])
        if fails:
            self.plan.failed(action, BrokerUnreachable("lost"))

    def leader(self):
        return leads(self.draw(LEADERS), OTHER_ID if self.chance() else TOPIC_ID)

    def answer(self, ask):
        if self.chance():
            return answer(error_code=self.draw(st.sampled_from([-1, 70, 103])))
        throttle_ms = self.draw(st.sampled_from([100, 60_000])) if self.chance() else 0
        parts = {part.partition: self.outcome(part) for part in ask.parts if not self.chance()}
        return answer(parts, throttle_ms=throttle_ms)

    def outcome(self, part):
        if self.chance():
            return Refused(error_code=self.draw(st.sampled_from([1, *PASSING])))
        if self.chance():
            return ReadReplica(node=self.draw(LEADERS))
        rest = [bounds for bounds in self.logs[part.partition] if bounds[1] > part.position]
        count = 0 if self.chance() else self.draw(st.integers(1, len(rest)))
        return fetched(part.partition, part.position, *rest[:count])


@st.composite
def some_logs(draw):
    found: dict[TopicPartition, list[tuple[int, int]]] = {}
    for number in range(draw(st.integers(1, 4))):
        at, batches = draw(st.integers(0, 50)), []
        for _ in range(draw(st.integers(1, 5))):
            base = at + draw(st.sampled_from([0, 0, 7]))  # compaction leaves gaps
            at = base + draw(st.integers(1, 20))
            batches.append((base, at))
        found[TopicPartition("orders", number)] = batches
    return found


@settings(max_examples=300)
@given(data=st.data(), logs=some_logs())
def test_every_range_comes_once_and_in_order_whatever_is_lost_or_refused(data, logs):
    cluster = Anything(data.draw, logs)
    try:
        cluster.run()
    except KafkaEosError:
        assert cluster.counted >= 2, "no doubt is settled sooner, and no error given up on"
        for tp, batches in logs.items():
            assert cluster.found[tp] == batches[: len(cluster.found[tp])]
    else:
        assert cluster.found == logs
        assert not cluster.in_flight
