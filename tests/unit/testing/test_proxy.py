"""The proxy between a client and a broker that are both played here: every fault, seen from both sides."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import EndTxnRequest, EndTxnResponse

from spark_kafka_eos.errors import BrokerUnreachable, ToolFailed
from spark_kafka_eos.testing.proxy import Passed, Proxy, Watcher
from spark_kafka_eos.testing.proxy_frames import request_header

SECONDS = 60


class PlayedBroker:
    """Answers ApiVersions, Metadata and EndTxn; `ended` holds the producer ids of the EndTxn that were applied."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.ended: list[int] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        if self._socket.fileno() >= 0:
            self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self) -> None:
        try:
            while True:
                client, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=[client], daemon=True).start()
        except OSError:
            pass

    def _serve(self, client: socket.socket) -> None:
        with client:
            while (frame := received(client)) is not None:
                header = request_header(frame)
                response = self._answer(header, frame)
                response.with_header(correlation_id=header.correlation_id)
                client.sendall(response.encode(header=True, framed=True))

    def _answer(self, header, frame):
        if header.api == "ApiVersions":
            key = ApiVersionsResponse.ApiVersion
            keys = [key(api_key=3, min_version=0, max_version=12)]
            return ApiVersionsResponse(version=header.version, api_keys=keys, finalized_features_epoch=-1)
        if header.api == "Metadata":
            broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            return MetadataResponse(version=header.version, brokers=[broker], topics=[])
        self.ended.append(EndTxnRequest.decode(frame, version=header.version, header=True).producer_id)
        return EndTxnResponse(version=header.version)


def received(source: socket.socket) -> bytes | None:
    """One frame; None where the connection ends."""
    data = b""
    wanted = 4
    while len(data) < wanted:
        chunk = source.recv(wanted - len(data))
        if not chunk:
            return None
        data += chunk
        if len(data) == 4:
            wanted = 4 + int.from_bytes(data, "big")
    return data[4:]


class Client:
    """A connection; EndTxn's producer id is its correlation id, so that broker and client can tell requests apart."""

    def __init__(self, bootstrap: str, client_id: str = "driver") -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), SECONDS)
        self._client_id = client_id

    def close(self) -> None:
        self._socket.close()

    def send(self, number: int) -> None:
        request = EndTxnRequest(version=4, transactional_id="t", producer_id=number, producer_epoch=0, committed=True)
        request.with_header(correlation_id=number, client_id=self._client_id)
        self._socket.sendall(request.encode(header=True, framed=True))

    def answer(self) -> tuple[int, int] | None:
        """The next answer's correlation id and error code; None where the connection was closed."""
        try:
            frame = received(self._socket)
        except ConnectionResetError:
            return None
        if frame is None:
            return None
        response = EndTxnResponse.decode(frame, version=4, header=True)
        return response.header.correlation_id, response.error_code

    def hears_part(self) -> None:
        """Waits for the first byte of an answer."""
        assert self._socket.recv(1)

    def ask(self, number: int) -> tuple[int, int] | None:
        self.send(number)
        return self.answer()

    def hears_nothing(self) -> bool:
        """True if the connection is open and no answer comes: the broker, asked later, has answered by then."""
        self._socket.setblocking(False)
        try:
            return self._socket.recv(1) == b"?"
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(SECONDS)


@pytest.fixture
def broker() -> Iterator[PlayedBroker]:
    broker = PlayedBroker()
    yield broker
    broker.close()


@pytest.fixture
def proxy(broker):
    with Proxy(f"127.0.0.1:{broker.port}") as proxy:
        yield proxy


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    """`connect(bootstrap, client_id="driver")`: a client, closed at the end."""
    with ExitStack() as clients:
        yield lambda *arguments: clients.enter_context(closing(Client(*arguments)))


@pytest.fixture
def client(proxy, connect):
    return connect(proxy.bootstrap)


def test_without_a_rule_everything_passes(client, broker):
    assert client.ask(1) == (1, 0)
    client.send(2)
    client.send(3)
    assert [client.answer(), client.answer()] == [(2, 0), (3, 0)]
    assert broker.ended == [1, 2, 3]


def test_metadata_leads_to_the_proxy(proxy):
    request = MetadataRequest(version=12, topics=[], allow_auto_topic_creation=False)
    request.with_header(correlation_id=1, client_id="me")
    host, port = proxy.bootstrap.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(request.encode(header=True, framed=True))
        frame = received(connection)
    assert frame is not None
    (named,) = MetadataResponse.decode(frame, version=12, header=True).brokers
    assert (named.host, named.port) == (host, int(port))


def test_a_dropped_request_and_all_that_follows_on_its_connection_never_arrive(proxy, client, broker, connect):
    dropped = proxy.add("EndTxn:2:drop-request")
    assert client.ask(1) == (1, 0)
    client.send(2)
    dropped.wait()
    client.send(3)
    assert connect(proxy.bootstrap).ask(4) == (4, 0)
    assert client.hears_nothing()
    assert broker.ended == [1, 4]


def test_a_dropped_response_was_applied_and_nothing_more_is_heard(proxy, client, broker, connect):
    dropped = proxy.add("EndTxn:drop-response")
    client.send(1)
    dropped.wait()
    assert broker.ended == [1]
    client.send(2)
    assert connect(proxy.bootstrap).ask(3) == (3, 0)
    assert client.hears_nothing()


def test_a_cut_request_is_not_applied(proxy, client, broker, connect):
    proxy.add("EndTxn:cut-request")
    assert client.ask(1) is None
    assert connect(proxy.bootstrap).ask(2) == (2, 0)
    assert broker.ended == [2]


def test_a_cut_response_was_applied(proxy, client, broker):
    proxy.add("EndTxn:cut-response")
    assert client.ask(1) is None
    assert broker.ended == [1]


def test_a_held_request_arrives_when_it_is_released_although_its_sender_has_hung_up(proxy, client, broker, connect):
    held = proxy.add("EndTxn:hold")
    client.send(1)
    held.wait()
    client.close()
    assert connect(proxy.bootstrap).ask(2) == (2, 0)
    held.release()
    held.wait_answered()
    assert broker.ended == [2, 1]


def test_a_delayed_request_arrives_also_if_its_sender_has_hung_up(proxy, client, broker):
    proxy.add("EndTxn:1:delay=0.05")
    late = proxy.add("EndTxn:2:delay=0.05")
    assert client.ask(1) == (1, 0)
    assert broker.ended == [1]
    client.send(2)
    late.wait_seen()
    client.close()
    late.wait_answered()
    assert broker.ended == [1, 2]


def test_a_duplicated_request_arrives_twice_on_two_connections_and_is_answered_once(proxy, client, broker):
    assert client.ask(1) == (1, 0)
    proxy.add("EndTxn:duplicate")
    before = broker.connections
    assert client.ask(2) == (2, 0)
    assert client.ask(3) == (3, 0)
    assert broker.ended == [1, 2, 2, 3]
    assert broker.connections == before + 1


def test_an_error_is_answered_in_its_turn_and_never_arrives(proxy, client, broker):
    held = proxy.add("EndTxn:1:drop-request")
    proxy.clear()
    proxy.add("EndTxn:2:error=CONCURRENT_TRANSACTIONS")
    for number in (1, 2, 3):
        client.send(number)
    assert [client.answer() for _ in range(3)] == [(1, 0), (2, 51), (3, 0)]
    assert broker.ended == [1, 3]
    assert held.fired == 0, "rules that were cleared do nothing"


def test_an_error_afterwards_was_applied(proxy, client, broker):
    proxy.add("EndTxn:error-after=14")
    assert client.ask(1) == (1, 14)
    assert broker.ended == [1]


def test_rules_count_the_requests_of_their_clients_and_the_first_that_is_due_acts(proxy, broker, connect):
    driver, executor = connect(proxy.bootstrap, "driver"), connect(proxy.bootstrap, "executor")
    first = proxy.add("EndTxn@driver:2:error=14")
    second = proxy.add("*:*:error=15")
    assert [driver.ask(1), executor.ask(2), driver.ask(3)] == [(1, 15), (2, 15), (3, 14)]
    second.wait_seen(3, timeout=0)
    assert (first.seen, first.fired, second.seen, second.fired) == (2, 1, 3, 2)


def test_every_request_is_reported_with_the_rule_it_meets(broker, connect):
    told: list[Passed] = []
    with Proxy(f"127.0.0.1:{broker.port}", ["EndTxn:2:error=14"], on_request=told.append) as proxy:
        client = connect(proxy.bootstrap)
        client.ask(1), client.ask(2)
    assert [(p.node, p.request.api, p.request.client, str(p.rule)) for p in told] == [
        (1, "EndTxn", "driver", "None"),
        (1, "EndTxn", "driver", "EndTxn:2:error=COORDINATOR_LOAD_IN_PROGRESS"),
    ]


class Told(Watcher):
    """What a watcher is told of one request, in order."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.over = threading.Event()

    @contextmanager
    def passes(self) -> Iterator[None]:
        self.all.append("passes")
        yield
        self.all.append("over")
        self.over.set()

    def responds(self, frame: bytes | bytearray) -> None:
        self.all.append(f"broker's answer {EndTxnResponse.decode(bytes(frame), version=4, header=True).error_code}")

    def received(self, *, own: bool) -> None:
        self.all.append("received the proxy's" if own else "received")


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (None, ["passes", "broker's answer 0", "received", "over"]),
        ("EndTxn:drop-response", ["passes", "broker's answer 0", "over"]),
        ("EndTxn:cut-response", ["passes", "broker's answer 0", "over"]),
        ("EndTxn:error-after=14", ["passes", "broker's answer 0", "received the proxy's", "over"]),
        ("EndTxn:error=14", ["received the proxy's"]),
        ("EndTxn:cut-request", []),
    ],
)
def test_a_watcher_is_told_what_becomes_of_a_request(broker, connect, rule, told):
    watcher = Told()
    with Proxy(f"127.0.0.1:{broker.port}", [rule] if rule else [], watch=lambda _: watcher) as proxy:
        client = connect(proxy.bootstrap)
        client.send(1)
        if "passes" in told:
            assert watcher.over.wait(SECONDS)
        else:
            client.answer()
    assert watcher.all == told


def test_an_answer_that_comes_after_the_client_has_gone_was_not_received(broker, connect):
    first, second = watchers = Told(), Told()
    waiting, gone = iter(watchers), []

    def watch(passed: Passed) -> Told:
        gone.append(passed.gone)
        return next(waiting)

    with Proxy(f"127.0.0.1:{broker.port}", watch=watch) as proxy:
        held = proxy.add("EndTxn:hold")
        client = connect(proxy.bootstrap)
        client.send(1), client.send(2)
        held.wait()
        client.close()
        held.release()
        assert second.over.wait(SECONDS)
    assert first.all == second.all == ["passes", "broker's answer 0", "over"]
    assert gone == [False, True]


def test_a_watcher_can_lose_a_request_with_its_connection(broker, connect):
    def watch(_passed: Passed) -> None:
        raise ConnectionAbortedError

    with Proxy(f"127.0.0.1:{broker.port}", watch=watch) as proxy:
        assert connect(proxy.bootstrap).ask(1) is None
    assert broker.ended == []


def test_requests_of_a_connection_that_is_watched_are_forwarded_one_after_the_other(broker, connect):
    watchers: list[Told] = []

    def watch(_passed: Passed) -> Told:
        watchers.append(Told())
        return watchers[-1]

    with Proxy(f"127.0.0.1:{broker.port}", watch=watch) as proxy:
        client = connect(proxy.bootstrap)
        client.send(1), client.send(2)
        assert [client.answer(), client.answer()] == [(1, 0), (2, 0)]
        assert all(watcher.over.wait(SECONDS) for watcher in watchers)
    assert [watcher.all[-1] for watcher in watchers] == ["over", "over"]
    assert broker.ended == [1, 2]


def test_a_cut_closes_what_is_connected_and_new_connections_are_accepted(proxy, client, connect):
    assert client.ask(1) == (1, 0)
    proxy.cut()
    assert client.answer() is None
    assert connect(proxy.bootstrap).ask(2) == (2, 0)


def test_a_slow_link_passes_answers_in_order_at_its_speed(proxy, connect):
    proxy.limit(100)
    client = connect(proxy.bootstrap)
    began = time.monotonic()
    for number in range(1, 6):
        client.send(number)
    assert [client.answer() for _ in range(5)] == [(number, 0) for number in range(1, 6)]
    seconds = 5 * 15 / 100  # of 15 bytes each
    assert seconds - 0.05 <= time.monotonic() - began < seconds + 2


def test_an_answer_on_a_slow_link_is_lost_with_its_connection(proxy, connect):
    proxy.limit(10)
    client = connect(proxy.bootstrap)
    client.send(1)
    client.hears_part()
    proxy.cut()
    assert client.answer() is None


def test_a_broker_that_is_gone_closes_the_connection(proxy, broker, connect):
    broker.close()
    assert connect(proxy.bootstrap).ask(1) is None


def test_anything_but_a_kafka_request_closes_the_connection_and_is_logged(proxy, broker, caplog):
    host, port = proxy.bootstrap.split(":")
    with socket.create_connection((host, int(port)), SECONDS) as connection:
        connection.sendall(b"\x00\x00\x00\x03GET")
        assert connection.recv(1) == b""
    assert "not a Kafka request" in caplog.text


def test_its_threads_and_ports_are_gone_afterwards(broker, connect):
    before = set(threading.enumerate())
    with Proxy(f"127.0.0.1:{broker.port}") as proxy:
        clients = [connect(proxy.bootstrap) for _ in range(3)]
        held = proxy.add("EndTxn:hold")
        clients[0].send(1)
        held.wait()
        assert clients[1].ask(2) == (2, 0)
    left = {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("proxy")}
    assert left == set()
    host, port = proxy.bootstrap.split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), SECONDS)


def test_a_rule_that_does_not_fire_is_an_error_of_the_one_who_waits(proxy):
    fault = proxy.add("EndTxn:hold")
    with pytest.raises(ToolFailed, match=r"EndTxn:1:hold has not fired 1 times within 0 s"):
        fault.wait(timeout=0)


def test_an_error_that_an_answer_cannot_tell_is_refused_when_the_rule_is_given(proxy):
    with pytest.raises(ToolFailed, match="cannot return an error for DescribeConfigs"):
        proxy.add("DescribeConfigs:error=14")


def test_a_cluster_that_is_not_there_is_an_error_at_the_start(broker):
    broker.close()
    with pytest.raises(BrokerUnreachable), Proxy(f"127.0.0.1:{broker.port}"):
        raise AssertionError("it has started")
