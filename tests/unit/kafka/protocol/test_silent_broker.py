"""A paused broker keeps its connections and answers nothing. What any broker knows, another one is asked then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection, wait_for_any
from spark_kafka_eos.options import ClientOptions
from tests.unit.scripted_peer import METADATA, Peer, ask, metadata

TIMEOUT_MS = 5_000  # request.timeout.ms; a second broker is asked after a tenth of it

Start = Callable[..., Peer]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def answering(cluster_id: str, after: Callable[[], object] = lambda: None) -> Callable[[int, int, int], bytes | None]:
    def behave(api: int, _version: int, number: int) -> bytes | None:
        if api != METADATA:
            return None
        after()
        answer: bytes = metadata(number, cluster_id)
        return answer

    return behave


@pytest.fixture
def cluster_of() -> Iterator[Callable[..., Cluster]]:
    opened = []

    def cluster_of(*peers: Peer, request_timeout_ms: int = TIMEOUT_MS) -> Cluster:
        servers = tuple(("127.0.0.1", each.port) for each in peers)
        opened.append(Cluster(ClientOptions(bootstrap_servers=servers, request_timeout_ms=request_timeout_ms)))
        return opened[-1]

    yield cluster_of
    for cluster in opened:
        cluster.close()


def asked(server: Peer) -> int:
    return sum(api == METADATA for api, _, _ in server.seen)


def test_another_broker_is_asked_while_one_is_silent(
    peer: Start,
    cluster_of: Callable[..., Cluster],
    release: threading.Event,
) -> None:
    silent, other = peer(answering("late", lambda: release.wait(10))), peer(answering("other"))
    started = time.monotonic()
    assert cluster_of(silent, other).cluster_id() == "other"
    assert time.monotonic() - started < TIMEOUT_MS / 1000 / 2


def test_a_broker_that_answers_soon_is_the_only_one_that_is_asked(
    peer: Start,
    cluster_of: Callable[..., Cluster],
) -> None:
    first, other = peer(answering("first")), peer(answering("other"))
    assert cluster_of(first, other).cluster_id() == "first"
    assert asked(other) == 0


def test_the_only_broker_has_all_of_the_time(peer: Start, cluster_of: Callable[..., Cluster]) -> None:
    slow = peer(answering("slow", lambda: time.sleep(TIMEOUT_MS / 1000 / 5)))
    assert cluster_of(slow).cluster_id() == "slow"
    assert asked(slow) == 1


def test_the_first_answer_counts_also_if_it_is_that_of_the_first_broker(
    peer: Start,
    cluster_of: Callable[..., Cluster],
    release: threading.Event,
) -> None:
    other_is_asked = threading.Event()

    def nothing(api: int, _version: int, _number: int) -> None:
        if api == METADATA:
            other_is_asked.set()
            release.wait(10)

    first, other = peer(answering("first", lambda: other_is_asked.wait(10))), peer(nothing)
    assert cluster_of(first, other).cluster_id() == "first"


def test_an_answer_is_still_waited_for_after_another_broker_was_lost(
    peer: Start,
    cluster_of: Callable[..., Cluster],
) -> None:
    closed = threading.Event()

    def closes(api: int, _version: int, _number: int) -> None:
        if api == METADATA:
            closed.set()

    first, other = peer(answering("first", lambda: closed.wait(10))), peer(closes)
    assert cluster_of(first, other).cluster_id() == "first"


def test_silence_of_all_brokers_is_an_error(
    peer: Start,
    cluster_of: Callable[..., Cluster],
    release: threading.Event,
) -> None:
    silent = [peer(answering("late", lambda: release.wait(10))) for _ in range(2)]
    with pytest.raises(BrokerUnreachable, match="timed out"):
        cluster_of(*silent, request_timeout_ms=300).cluster_id()


def test_a_silent_broker_is_not_asked_again_before_it_has_answered(
    peer: Start,
    cluster_of: Callable[..., Cluster],
    release: threading.Event,
) -> None:
    silent, other = peer(answering("late", lambda: release.wait(10))), peer(answering("other"))
    cluster = cluster_of(silent, other)
    cluster.cluster_id()
    for _ in range(5):
        assert cluster.topic_names() == []
    assert asked(silent) == 1


def test_the_answer_of_a_broker_that_was_silent_is_dropped_when_it_comes(
    peer: Start,
    cluster_of: Callable[..., Cluster],
    release: threading.Event,
) -> None:
    silent, other = peer(answering("late", lambda: release.wait(10))), peer(answering("other"))
    cluster = cluster_of(silent, other)
    assert cluster.cluster_id() == "other"
    late, (_, _, number) = cluster._connections["127.0.0.1", silent.port, 0], silent.seen[-1]
    release.set()
    while not late.arrived(number):
        wait_for_any([(late, number)], 10)
    with pytest.raises(BrokerUnreachable):
        late.receive(number)


def test_a_response_that_was_forgotten_is_dropped_and_the_connection_goes_on(
    peer: Start,
    connect: Callable[[Peer], Connection],
) -> None:
    numbers = iter("abc")
    server = peer(lambda api, _, number: metadata(number, next(numbers)) if api == METADATA else None)
    connection = connect(server)
    before, here, after = (ask(connection) for _ in range(3))
    connection.forget(before)
    assert connection.receive(after).cluster_id == "c"
    assert connection.in_flight == 0
    connection.forget(here)
    for forgotten in (before, here):
        with pytest.raises(BrokerUnreachable):
            connection.receive(forgotten)
