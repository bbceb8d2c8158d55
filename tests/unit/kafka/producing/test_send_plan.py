"""The plan's decisions one by one; under all faults together it is in test_send_plan_faults."""

from collections.abc import Sequence

import pytest

from spark_kafka_eos.errors import AuthorizationFailed, BrokerUnreachable, InvalidRow, KafkaEosError, TransactionAborted
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import Ack
from spark_kafka_eos.kafka.producing.send_plan import (
    LeaderConnection,
    PartitionResponse,
    Recover,
    SendPlan,
    SendRequest,
)
from spark_kafka_eos.kafka.protocol.error_codes import Reaction

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEGABYTE = bytes(1 << 20)
RECORDS = 3
OK, OUT_OF_ORDER, DUPLICATE = PartitionResponse(0, base_offset=100), PartitionResponse(45), PartitionResponse(46)


def new_plan(*, requested: bool = False, without: Sequence[str] = (), **settings: int) -> SendPlan:
    bounds = {"max_in_flight": 5, "max_held_bytes": 32 << 20, "linger_bytes": 0} | settings
    return SendPlan(transactional_id="tx", requested=requested, without=without, **bounds)


def queue(plan: SendPlan, partition: TopicPartition, *sequences: int, data: bytes = bytes(10)) -> None:
    for sequence in sequences:
        plan.queued(partition, data, RECORDS, sequence)


def send(plan: SendPlan, leader: int = 1) -> list[SendRequest]:
    """Everything that may be sent; one node leads all partitions."""
    done: list[SendRequest] = []
    while requests := plan.requests(dict.fromkeys(plan.sendable(), leader)):
        for request in requests:
            plan.sent(request)
        done += requests
    return done


def answer(plan: SendPlan, request: SendRequest, answer: PartitionResponse = OK) -> list[Ack | Recover]:
    """The same answer for all that the request holds."""
    return plan.answered(request, {batch.partition: answer for batch in request.batches})


def known(plan: SendPlan, *partitions: TopicPartition) -> SendPlan:
    """With batch 0 of these partitions acknowledged."""
    for partition in partitions:
        queue(plan, partition, 0)
    for request in send(plan):
        answer(plan, request)
    return plan


def carried(requests: list[SendRequest]) -> list[list[int]]:
    return [[batch.base_sequence for batch in request.batches] for request in requests]


def numbers(requests: list[SendRequest]) -> list[int]:
    return [request.connection.number for request in requests]


# -- what is sent


def test_an_acknowledgement_says_what_was_appended_and_where() -> None:
    plan = new_plan()
    queue(plan, FIRST, 7)
    (request,) = send(plan)
    assert answer(plan, request) == [
        Ack(partition=FIRST, base_sequence=7, records=RECORDS, bytes=10, base_offset=100),
    ]
    assert plan.held_bytes == 0


def test_the_first_batch_of_a_partition_goes_alone() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0, 1, 2)
    (request,) = send(plan)
    assert carried([request]) == [[0]]
    answer(plan, request)
    assert carried(send(plan)) == [[1], [2]]


def test_at_most_five_batches_of_a_partition_are_in_flight() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, *range(1, 12))
    requests = send(plan)
    assert carried(requests) == [[1], [2], [3], [4], [5]]
    answer(plan, requests[0])
    assert carried(send(plan)) == [[6]]


def test_a_connection_has_at_most_five_requests_in_flight_for_all_partitions_together() -> None:
    plan = known(new_plan(), FIRST, SECOND)
    queue(plan, FIRST, *range(1, 6))
    assert len(send(plan)) == 5
    queue(plan, SECOND, 1)
    assert send(plan) == []


def test_partitions_of_one_leader_share_a_request() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    queue(plan, SECOND, 0)
    assert carried(send(plan)) == [[0, 0]]


def test_each_leader_gets_a_request_of_its_own() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    queue(plan, SECOND, 0)
    requests = plan.requests({FIRST: 1, SECOND: 2})
    assert [(request.connection, len(request.batches)) for request in requests] == [
        (LeaderConnection(1, 0), 1),
        (LeaderConnection(2, 0), 1),
    ]


@pytest.mark.parametrize(("size", "together"), [(2 << 20, [4, 1]), (8 << 20, [1, 1, 1, 1, 1]), (9 << 20, [1] * 5)])
def test_partitions_share_a_request_up_to_8_mb(size: int, together: list[int]) -> None:
    plan = new_plan()
    for number in range(5):
        queue(plan, TopicPartition("orders", number), 0, data=bytes(size))
    assert [len(request.batches) for request in send(plan)] == together


def test_a_request_counts_from_when_it_is_sent() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    proposed, again = (plan.requests({FIRST: 1})[0] for _ in range(2))
    assert proposed.batches == again.batches
    plan.sent(proposed)
    assert plan.sendable() == []


@pytest.mark.parametrize(
    ("linger", "held", "queued", "due", "full"),
    [
        (100, 1_000, 9, False, False),
        (100, 1_000, 10, True, False),
        (1_000, 100, 10, False, False),
        (1_000, 100, 11, True, True),
    ],
)
def test_it_is_due_when_enough_has_gathered_and_full_when_too_much_is_held(
    linger: int, held: int, queued: int, due: bool, full: bool
) -> None:
    plan = new_plan(linger_bytes=linger, max_held_bytes=held)
    queue(plan, FIRST, *range(queued))
    assert (plan.due, plan.full) == (due, full)


# -- by which connection


def test_megabytes_in_flight_are_worth_a_second_connection() -> None:
    plan = known(new_plan(), FIRST, SECOND)
    queue(plan, FIRST, 1, data=MEGABYTE)
    queue(plan, SECOND, 1, data=MEGABYTE)
    assert numbers(send(plan)) == [0, 1]


def test_less_than_a_megabyte_is_not_worth_a_second_connection() -> None:
    plan = known(new_plan(), FIRST, SECOND)
    queue(plan, FIRST, 1, data=MEGABYTE[1:])
    queue(plan, SECOND, 1, data=MEGABYTE)
    assert numbers(send(plan)) == [0]


def test_first_batches_all_go_by_the_first_connection() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, 1, data=MEGABYTE)
    queue(plan, SECOND, 0, data=MEGABYTE)
    assert numbers(send(plan)) == [0]


def test_a_partition_changes_over_only_while_it_has_nothing_in_flight() -> None:
    plan = known(new_plan(), FIRST, SECOND)
    queue(plan, FIRST, 1, 2, data=MEGABYTE)
    requests = send(plan)
    assert numbers(requests) == [0, 0]
    queue(plan, SECOND, 1)
    assert numbers(send(plan)) == [1]
    for request in requests:
        answer(plan, request)
    queue(plan, SECOND, 2, data=MEGABYTE)
    queue(plan, FIRST, 3)
    assert {request.connection.number: len(request.batches) for request in send(plan)} == {1: 1, 0: 1}
    queue(plan, SECOND, 3)
    assert numbers(send(plan)) == [1]


# -- what an answer means


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        *((code, Reaction.REFRESH_METADATA) for code in (3, 5, 6, 56, 74)),
        *((code, Reaction.RETRY_SAME) for code in (2, 7, 13, 15, 16, 20)),
        *((code, Reaction.RETRY_SOON) for code in (19, 51)),
    ],
)
def test_after_a_passing_error_the_same_bytes_are_sent_again(code: int, reaction: Reaction) -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    (request,) = send(plan)
    (recover,) = answer(plan, request, PartitionResponse(code))
    assert isinstance(recover, Recover) and recover.reaction is reaction
    assert recover.topics == ({"orders"} if reaction is Reaction.REFRESH_METADATA else set())
    (again,) = send(plan)
    assert again.batches == request.batches


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (46, TransactionAborted, r"DUPLICATE_SEQUENCE_NUMBER \(46\) for orders-0"),
        (45, TransactionAborted, r"OUT_OF_ORDER_SEQUENCE_NUMBER \(45\) for orders-0"),
        (47, TransactionAborted, "INVALID_PRODUCER_EPOCH"),
        (29, AuthorizationFailed, "orders-0"),
        *((code, InvalidRow, "orders-0, a record batch of 3 records and 10 bytes") for code in (10, 18, 32, 87)),
    ],
)
def test_what_no_retry_mends_is_raised(code: int, error: type[KafkaEosError], message: str) -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    (request,) = send(plan)
    with pytest.raises(error, match=message):
        answer(plan, request, PartitionResponse(code))


def test_what_the_broker_says_of_a_record_is_passed_on_once() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    (request,) = send(plan)
    with pytest.raises(InvalidRow, match="10 bytes: invalid: too far in the future,"):
        answer(plan, request, PartitionResponse(32, details=["invalid", "", "too far in the future", "invalid"]))


def test_a_duplicate_is_success_for_our_own_resend() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    answer(plan, send(plan)[0], PartitionResponse(7))
    (ack,) = answer(plan, send(plan)[0], DUPLICATE)
    assert isinstance(ack, Ack) and ack.base_offset == -1


def test_a_connection_that_could_not_be_opened_does_not_make_the_next_sending_a_resend() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    plan.requests({FIRST: 1})
    plan.unreachable(BrokerUnreachable("refused"))
    with pytest.raises(TransactionAborted):
        answer(plan, send(plan)[0], DUPLICATE)


def test_after_a_failed_batch_nothing_more_is_sent_until_all_in_flight_is_answered() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, *range(1, 8))
    failed, *behind = send(plan)
    answer(plan, failed, PartitionResponse(6))
    for request in behind:
        assert send(plan) == []
        assert answer(plan, request, OUT_OF_ORDER) == []
    assert carried(send(plan)) == [[1], [2], [3], [4], [5]]


def test_a_batch_that_is_sent_again_has_at_most_four_behind_it() -> None:
    """The broker remembers five: with a sixth it would not recognize the first, should it come once more."""
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, *range(1, 8))
    first, *others = send(plan)
    answer(plan, first, PartitionResponse(7))  # the leader has it, but its followers may not
    for request in others:
        answer(plan, request)
    (again,) = send(plan)
    assert carried([again]) == [[1]]
    plan.lost([again])
    (again,) = send(plan)
    answer(plan, again)
    assert carried(send(plan)) == [[6], [7]]


def test_out_of_order_is_no_error_while_a_previous_one_may_still_fail() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, 1, 2)
    (first,) = plan.requests({FIRST: 1})
    plan.sent(first)
    (second,) = plan.requests({FIRST: 2})  # the leader has moved
    plan.sent(second)
    assert answer(plan, second, OUT_OF_ORDER) == []
    assert len(answer(plan, first)) == 1
    assert carried(send(plan)) == [[2]]


def test_out_of_order_is_an_error_where_only_later_ones_failed() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, 1, 2)
    first, second = send(plan)
    answer(plan, second, PartitionResponse(7))
    with pytest.raises(TransactionAborted):
        answer(plan, first, OUT_OF_ORDER)


def test_of_several_troubles_one_is_recovered_from() -> None:
    plan = new_plan()
    queue(plan, FIRST, 0)
    queue(plan, SECOND, 0)
    (request,) = send(plan)
    actions = plan.answered(request, {FIRST: PartitionResponse(7), SECOND: PartitionResponse(6)})
    assert [type(action) for action in actions] == [Recover]
    assert carried(send(plan)) == [[0, 0]]


# -- when a connection is lost


def test_what_a_lost_connection_had_in_flight_is_sent_again_first_sequence_first() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, *range(1, 8))
    plan.lost(reversed(send(plan)))
    assert carried(send(plan)) == [[1], [2], [3], [4], [5]]


def test_an_answer_counts_for_the_batches_of_its_request_whatever_else_was_lost() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, 1, 2)
    (old,) = plan.requests({FIRST: 1})
    plan.sent(old)
    (new,) = plan.requests({FIRST: 2})  # the leader has moved
    plan.sent(new)
    plan.lost([new])
    assert send(plan) == []
    (ack,) = answer(plan, old)
    assert isinstance(ack, Ack) and ack.base_sequence == 1
    assert carried(send(plan, leader=2)) == [[2]]


def test_a_lost_connection_leaves_room_for_what_follows() -> None:
    plan = known(new_plan(), FIRST)
    for _ in range(10):
        queue(plan, FIRST, *range(1, 6), data=MEGABYTE)
        plan.lost(send(plan))
    requests = send(plan)
    assert (len(requests), requests[0].connection) == (5, LeaderConnection(1, 0))


def test_after_a_lost_connection_the_topics_of_all_that_waits_are_looked_up_again() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, TopicPartition("alerts", 0), 0)
    error = BrokerUnreachable("the broker closed the connection")
    assert plan.unreachable(error) == Recover(error, Reaction.REFRESH_METADATA, frozenset({"alerts"}))


def test_nothing_is_held_or_sent_of_what_is_given_up() -> None:
    plan = known(new_plan(), FIRST)
    queue(plan, FIRST, *range(1, 8))
    send(plan)
    plan.given_up()
    assert (plan.held_bytes, plan.sendable()) == (0, [])


# -- idempotence that is only requested

OLD_FORMAT = PartitionResponse(43)
OTHER = TopicPartition("today", 0)


def test_a_partition_of_an_old_format_goes_on_without_a_producer_id_one_by_one_and_others_as_before() -> None:
    plan = new_plan(requested=True)
    queue(plan, FIRST, 0, 3, 6)
    queue(plan, OTHER, 0, 3, 6)
    (request,) = send(plan)
    actions = plan.answered(request, {FIRST: OLD_FORMAT, OTHER: OK})
    assert [action for action in actions if isinstance(action, Recover)] == []
    assert plan.is_without_producer_id(FIRST) and not plan.is_without_producer_id(OTHER)
    assert list(plan.refused) == ["orders"] and "UNSUPPORTED_FOR_MESSAGE_FORMAT" in str(plan.refused)
    again = send(plan)
    assert carried(again) == [[0, 3], [6]]
    assert [batch.partition for batch in again[0].batches] == [FIRST, OTHER]
    again[0].batches[0].without_producer_id = True
    answer(plan, again[0])
    answer(plan, again[1])
    assert carried(send(plan)) == [[3]]


def test_a_partition_that_is_known_to_have_an_old_format_never_had_a_producer_id() -> None:
    plan = new_plan(requested=True, without=["orders"])
    queue(plan, FIRST, 0, 3)
    queue(plan, OTHER, 0)
    assert plan.is_without_producer_id(FIRST) and not plan.is_without_producer_id(OTHER)
    assert carried(send(plan)) == [[0, 0]]


def test_a_format_that_is_lowered_while_batches_are_in_flight_keeps_their_order() -> None:
    plan = known(new_plan(requested=True), FIRST)
    queue(plan, FIRST, 3, 6)
    requests = send(plan)
    assert carried(requests) == [[3], [6]]
    answer(plan, requests[0], OLD_FORMAT)
    assert send(plan) == []
    answer(plan, requests[1], OLD_FORMAT)
    assert carried(send(plan)) == [[3]]


@pytest.mark.parametrize("requested", [False, True])
def test_an_old_format_is_an_error_for_who_requires_idempotence_and_for_who_has_none_any_more(requested: bool) -> None:
    plan = new_plan(requested=requested)
    queue(plan, FIRST, 0)
    (request,) = send(plan)
    request.batches[0].without_producer_id = requested
    with pytest.raises(KafkaEosError, match="UNSUPPORTED_FOR_MESSAGE_FORMAT"):
        answer(plan, request, OLD_FORMAT)
