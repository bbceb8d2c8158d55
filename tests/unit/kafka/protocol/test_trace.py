"""The timeline of a batch: attempts joined, tasks' requests placed and limited, and there and back as JSON."""

from __future__ import annotations

import json

from spark_kafka_eos.kafka.protocol.trace import NO_TRACE, Phase, Request, Trace


def request(api="InitProducerId", start=0.0, milliseconds=1.0, error="", about="", node="a:1"):
    return Request(api=api, node=node, start=start, milliseconds=milliseconds, error=error, about=about)


def trace(*requests, began_ms=1_000.0, left_out=0):
    return Trace(began_ms=began_ms, milliseconds=50.0, requests=requests, left_out=left_out)


def test_attempts_of_one_rpc_are_joined_also_around_others():
    busy = "CONCURRENT_TRANSACTIONS"
    joined = trace(
        request(start=1, error=busy),
        request(api="FindCoordinator", start=3, about="id"),
        request(start=5, error=busy, node="b:1"),
        request(start=10, milliseconds=2, node="b:1"),
        request(start=20),
    ).rpcs()
    assert [(rpc.first.api, rpc.first.start, rpc.milliseconds, rpc.retries) for rpc in joined] == [
        ("InitProducerId", 1, 11, {busy: 2}),
        ("FindCoordinator", 3, 1, {}),
        ("InitProducerId", 20, 1, {}),
    ]


def test_the_last_error_of_an_rpc_that_failed_was_not_retried():
    fenced = trace(request(error="no response"), request(start=1, error="PRODUCER_FENCED"))
    assert (fenced.retries, fenced.rpcs()[0].last.error) == ({"no response": 1}, "PRODUCER_FENCED")


def test_what_retries_cost_is_counted_once_where_tasks_waited_at_the_same_time():
    busy, lost = "CONCURRENT_TRANSACTIONS", "no response"
    driver = trace(request(start=1, error=busy), request(start=5, error=lost), request(start=9, error="FENCED"))
    task = trace(request("AddPartitionsToTxn", 4, error=busy), request("AddPartitionsToTxn", 12))
    assert driver.with_tasks([(0, task), (1, task)]).waited == {busy: 11, lost: 4}


def test_requests_about_something_else_are_no_retries():
    other = trace(
        request("TxnOffsetCommit", about="id", error="NOT_COORDINATOR"),
        request("TxnOffsetCommit", 1, about="id.ledger"),
    )
    assert len(other.rpcs()) == 2
    assert not other.retries


def test_requests_of_tasks_are_placed_by_their_clocks():
    whole = trace(request("EndTxn", 40)).with_tasks([(3, trace(request("Produce", 2), began_ms=1_010.0))])
    assert [(each.api, each.start, each.task) for each in whole.requests] == [("Produce", 12, 3), ("EndTxn", 40, None)]


def test_of_many_requests_of_tasks_those_that_failed_and_the_slowest_are_kept():
    tasks = [(slot, trace(*(request("Produce", i, i) for i in range(100)), left_out=1)) for slot in range(10)]
    tasks.append((10, trace(request("Produce", 7, 0, error="NOT_ENOUGH_REPLICAS"))))
    whole = trace(request("EndTxn", 99)).with_tasks(tasks)
    assert (len(whole.requests), whole.left_out) == (501, 511)
    assert whole.retries == {}
    assert any(each.error for each in whole.requests)
    assert sum(each.api == "Produce" and each.milliseconds < 50 for each in whole.requests) == 1


def test_a_trace_comes_back_from_json():
    there = Trace(
        began_ms=1.5,
        milliseconds=3.25,
        phases=(Phase(name="begin", start=0, milliseconds=1.0),),
        requests=(request(),),
        links=("00-1-2-01",),
    )
    for each in there, NO_TRACE:
        assert Trace.from_json(json.loads(json.dumps(each.to_json()))) == each
