"""One connection against a scripted peer on the loopback interface: frames, order, versions, everything that breaks."""

from __future__ import annotations

import contextlib
import signal
import socket
import ssl
import struct
import threading
import time
import uuid
import weakref
from functools import partial

import psutil
import pytest
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection, wait_for_any
from spark_kafka_eos.kafka.protocol.recorder import NO_RESPONSE, recording
from spark_kafka_eos.options import ClientOptions, Secret, Security
from tests.certificates import issue
from tests.unit.scripted_peer import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    ApiVersion,
    api_versions,
    ask,
    encoded,
    metadata,
)


def test_a_response_is_matched_to_its_request(peer, connect):
    server = peer(lambda api, version, number: metadata(number) if api == METADATA else None)
    connection = connect(server)
    assert connection.receive(ask(connection)).cluster_id == "c"
    assert server.seen == [(API_VERSIONS, 3, 1), (METADATA, 12, 2)]


def test_a_response_is_decoded_although_another_thread_has_spoiled_the_registry_of_their_classes(
    peer, connect, monkeypatch
):
    """kafka-python keeps weak references, and two threads that ask for one version at once leave a dead one."""

    class Dropped:
        pass

    monkeypatch.setitem(ResponseClassRegistry._response_class_registry, METADATA, weakref.proxy(Dropped()))
    connection = connect(peer(lambda api, version, number: metadata(number) if api == METADATA else None))
    assert connection.receive(ask(connection)).cluster_id == "c"


def test_requests_are_pipelined_and_answers_kept_until_they_are_requested(peer, connect):
    connection = connect(peer(lambda api, version, n: metadata(n, f"answer {n}") if api == METADATA else None))
    numbers = [ask(connection) for _ in range(3)]
    assert connection.in_flight == 3
    assert [connection.receive(n).cluster_id for n in reversed(numbers)] == [f"answer {n}" for n in reversed(numbers)]
    assert connection.in_flight == 0


def test_of_what_nobody_waits_for_any_more_no_answer_is_kept(peer, connect):
    connection = connect(peer(lambda api, version, n: metadata(n, f"answer {n}") if api == METADATA else None))
    early, late, wanted = (ask(connection) for _ in range(3))
    connection.forget(late)
    assert connection.receive(wanted).cluster_id == f"answer {wanted}"
    connection.forget(early)
    assert (connection.in_flight, connection._early, connection._forgotten) == (0, {}, set())


def test_an_answer_to_another_request_ends_the_connection(peer, connect):
    connection = connect(peer(lambda api, version, n: metadata(n + 5) if api == METADATA else None))
    with pytest.raises(BrokerUnreachable, match="received response 7, expected 2"):
        connection.receive(ask(connection))
    assert not connection.usable


def test_a_malformed_response_ends_the_connection(peer, connect):
    def cut_short(api, version, number):
        if api == METADATA:
            whole = metadata(number)
            return struct.pack(">i", 9) + whole[4:13]
        return None

    connection = connect(peer(cut_short))
    with pytest.raises(BrokerUnreachable, match="malformed response"):
        connection.receive(ask(connection))
    assert not connection.usable


def test_an_interrupt_in_the_middle_of_a_response_ends_the_connection(peer, connect):
    def half(api, version, number):
        return metadata(number)[:-1] if api == METADATA else None

    connection = connect(peer(half))
    number = ask(connection)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            connection.receive(number)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert not connection.usable


def test_a_broker_too_old_for_our_version_question_is_asked_in_its_own(peer, connect):
    def old(api, version, number):
        if version > 2:
            return api_versions(
                0, number, error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
            )
        return api_versions(version, number)

    server = peer(old)
    connect(server)
    assert server.seen == [(API_VERSIONS, 3, 1), (API_VERSIONS, 2, 2)]


@pytest.mark.parametrize(("epoch", "known"), [(0, True), (1, True), (-1, False)])
def test_finalized_features_are_known_after_connecting_unless_the_broker_does_not_know_them(
    peer, connect, epoch, known
):
    features = [
        ApiVersionsResponse.FinalizedFeatureKey(name="transaction.version", max_version_level=2, min_version_level=2)
    ]

    def modern(api, version, number):
        return api_versions(version, number, finalized_features_epoch=epoch, finalized_features=features)

    assert connect(peer(modern)).finalized_features == ({"transaction.version": 2} if known else {})


def test_a_connection_the_broker_closes_is_never_used_again(peer, connect):
    server = peer()
    connection = connect(server)
    with pytest.raises(
        BrokerUnreachable, match=f"127.0.0.1:{server.port}: the broker closed the connection; requests in flight: 1"
    ):
        connection.receive(ask(connection))
    assert not connection.usable
    with pytest.raises(BrokerUnreachable, match="the connection is closed"):
        ask(connection)


def test_all_requests_in_flight_are_unanswered_when_the_connection_breaks(peer, connect):
    asked = threading.Event()

    def hang_up(api, version, number):
        if api == METADATA:
            asked.wait(10)

    connection = connect(peer(hang_up))
    numbers = [ask(connection) for _ in range(3)]
    asked.set()
    for number in numbers:
        with pytest.raises(BrokerUnreachable):
            connection.receive(number)


def test_a_request_that_is_lost_with_its_connection_is_recorded_without_a_response(peer, connect):
    connection = connect(peer())
    with recording() as recorder, pytest.raises(BrokerUnreachable):
        connection.receive(ask(connection))
    assert [(each.api, each.error) for each in recorder.trace().requests] == [("Metadata", NO_RESPONSE)]


def test_a_silent_broker_is_given_up_after_the_request_timeout(peer, connect):
    release = threading.Event()

    def silent(api, version, number):
        if api == METADATA:
            release.wait(10)

    server = peer(silent)
    connection = connect(server, request_timeout_ms=200)
    started = time.monotonic()
    try:
        with pytest.raises(BrokerUnreachable, match="no response: timed out"):
            connection.receive(ask(connection))
        assert time.monotonic() - started < 5
        assert not connection.usable
    finally:
        release.set()


def test_a_broker_that_answers_byte_by_byte_is_given_up_after_the_request_timeout(peer, connect):
    """The timeout bounds the answer, not each read of it."""
    hung_up = threading.Event()

    def drip(api, version, number):
        if api != METADATA:
            return None
        for byte in metadata(number):
            try:
                server.accepted.sendall(bytes([byte]))
            except OSError:
                return None
            if hung_up.wait(0.2):
                return None
        return b""

    server = peer(drip)
    connection = connect(server, request_timeout_ms=500)
    number = ask(connection)
    started = time.monotonic()
    try:
        with pytest.raises(BrokerUnreachable, match="no response: timed out"):
            connection.receive(number)
        assert 0.4 < time.monotonic() - started < 4, "the answer's 39 bytes take 8 s"
    finally:
        hung_up.set()


def large(correlation_id, size=5 << 14):
    """A response that only `decode` reads."""
    return struct.pack(">ii", 4 + size, correlation_id) + bytes(size)


def ask_for_bytes(connection):
    """Asks for what `large` answers."""
    return connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False), decode=len)


def steadily(server, pause):
    """Answers with `large` in pieces of 16 KiB, with a pause after each."""

    def answer(api, version, number):
        if api != METADATA:
            return None
        response = large(number)
        for start in range(0, len(response), 1 << 14):
            server.accepted.sendall(response[start : start + (1 << 14)])
            pause()
        return b""

    return answer


def silent_until(release):
    """Answers nothing, and then closes the connection."""

    def wait(api, version, number):
        if api == METADATA:
            release.wait(10)

    return wait


def test_a_slow_link_is_not_taken_for_a_silent_broker(peer, connect):
    server = peer()
    server.behave = steadily(server, lambda: time.sleep(0.25))
    connection = connect(server, request_timeout_ms=500)
    assert connection.receive(ask_for_bytes(connection)) == 4 + (5 << 14), "it took 1.25 s"
    size, seconds = connection.arrival
    assert size == 4 + (5 << 14)
    assert 0.8 < seconds < 10


def test_a_response_that_stops_halfway_is_given_up_and_says_how_much_came(peer, connect):
    release = threading.Event()

    def half(api, version, number):
        if api == METADATA:
            server.accepted.sendall(large(number)[: 2 << 14])
            release.wait(10)

    server = peer(half)
    connection = connect(server, request_timeout_ms=300)
    try:
        with pytest.raises(BrokerUnreachable, match="no response: timed out"):
            connection.receive(ask_for_bytes(connection))
        assert connection.arrival[0] == (2 << 14) - 4
    finally:
        release.set()


def test_the_first_answer_of_several_brokers_is_taken_first(peer, connect):
    release = threading.Event()
    slow, fast = peer(), peer()
    slow.behave = steadily(slow, lambda: release.wait(10))
    fast.behave = lambda api, version, number: large(number) if api == METADATA else None
    connections = [connect(slow), connect(fast)]
    requests = [(connection, ask_for_bytes(connection)) for connection in connections]
    try:
        while not connections[1].arrived(requests[1][1]):
            wait_for_any(requests, 10)
        assert not connections[0].arrived(requests[0][1])
        assert connections[1].receive(requests[1][1]) == 4 + (5 << 14)
    finally:
        release.set()
    while not connections[0].arrived(requests[0][1]):
        wait_for_any(requests[:1], 10)
    assert connections[0].receive(requests[0][1]) == 4 + (5 << 14)


def test_nothing_that_comes_is_waited_for_no_longer_than_asked(peer, connect):
    release = threading.Event()
    connection = connect(peer(silent_until(release)))
    number = ask_for_bytes(connection)
    started = time.monotonic()
    try:
        wait_for_any([(connection, number)], 0.2)
        assert 0.15 < time.monotonic() - started < 4
        assert not connection.arrived(number)
    finally:
        release.set()


def test_a_silent_one_of_several_brokers_is_lost_after_the_request_timeout(peer, connect):
    release = threading.Event()
    connection = connect(peer(silent_until(release)), request_timeout_ms=300)
    started = time.monotonic()
    number = ask_for_bytes(connection)
    try:
        while not connection.arrived(number):
            wait_for_any([(connection, number)], 10)
        assert time.monotonic() - started >= 0.3, "and not before"
        with pytest.raises(BrokerUnreachable, match="timed out"):
            connection.receive(number)
    finally:
        release.set()


def test_a_lost_one_of_several_brokers_says_why(peer, connect):
    connection = connect(peer(lambda api, version, number: None))
    number = ask_for_bytes(connection)
    while not connection.arrived(number):
        wait_for_any([(connection, number)], 10)
    with pytest.raises(BrokerUnreachable, match="closed the connection|reset"):
        connection.receive(number)


def test_a_broker_that_reads_nothing_is_given_up_after_the_request_timeout(peer, connect):
    release = threading.Event()

    def deaf(api, version, number):
        if api == METADATA:
            release.wait(10)

    connection = connect(peer(deaf), request_timeout_ms=300)
    ask(connection)
    topics = [MetadataRequest.MetadataRequestTopic(topic_id=uuid.UUID(int=0), name="t" * 4_000)] * 5_000
    started = time.monotonic()
    try:
        with pytest.raises(BrokerUnreachable, match="sending MetadataRequest failed: timed out"):
            connection.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        assert time.monotonic() - started < 5
        assert not connection.usable
    finally:
        release.set()


def test_what_is_not_kafka_is_recognised(peer, connect):
    server = peer(lambda api, version, number: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(BrokerUnreachable, match="not Kafka's protocol"):
        connect(server)


def test_a_refused_connection_names_host_and_port():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(BrokerUnreachable, match=f"no connection to 127.0.0.1:{port}: .*refused"):
        Connection("127.0.0.1", port, ClientOptions(bootstrap_servers=(("127.0.0.1", port),)))


def test_an_unknown_host_is_named():
    with pytest.raises(BrokerUnreachable, match="no connection to broker.invalid:9092"):
        Connection("broker.invalid", 9092, ClientOptions(bootstrap_servers=(("broker.invalid", 9092),)))


def test_it_tells_whether_an_answer_is_there_already(peer, connect):
    release = threading.Event()

    def late(api, version, number):
        if api == METADATA:
            release.wait(10)
            return metadata(number)
        return None

    connection = connect(peer(late))
    number = ask(connection)
    try:
        assert not connection.readable()
    finally:
        release.set()
    connection.receive(number)
    connection.close()
    assert connection.readable()  # so that a loss is noticed


LOGIN = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="ann", password=Secret("hunter2"))


def sasl(api, version, number, *, handshake=0, authenticate=0, session_lifetime_ms=0):
    if api == SASL_HANDSHAKE:
        return encoded(SaslHandshakeResponse(error_code=handshake, mechanisms=["GSSAPI"]), version, number)
    if api == SASL_AUTHENTICATE:
        answer = SaslAuthenticateResponse(
            error_code=authenticate, error_message="no", auth_bytes=b"", session_lifetime_ms=session_lifetime_ms
        )
        return encoded(answer, version, number)
    return None


@pytest.mark.parametrize(("session_lifetime_ms", "usable"), [(0, True), (1, False), (3_600_000, True)])
def test_a_connection_whose_session_is_about_to_end_is_replaced(peer, connect, session_lifetime_ms, usable):
    connection = connect(peer(partial(sasl, session_lifetime_ms=session_lifetime_ms)), security=LOGIN)
    time.sleep(0.01)
    assert connection.usable == usable


def test_a_session_is_used_for_less_than_its_lifetime(peer, connect, monkeypatch):
    connection = connect(peer(partial(sasl, session_lifetime_ms=1_000_000)), security=LOGIN)
    now = time.monotonic()
    for passed, usable in ((840, True), (850, False), (1_000, False)):
        monkeypatch.setattr(time, "monotonic", lambda passed=passed: now + passed)
        assert connection.usable == usable, f"after {passed} of 1,000 seconds"


def test_a_mechanism_the_broker_does_not_take_is_named_with_those_it_does(peer, connect):
    with pytest.raises(AuthenticationFailed, match="PLAIN.*The broker supports GSSAPI"):
        connect(peer(partial(sasl, handshake=33)), security=LOGIN)


def test_a_refused_login_names_the_user_and_shows_no_password(peer, connect):
    with pytest.raises(AuthenticationFailed, match="rejected user 'ann'") as caught:
        connect(peer(partial(sasl, authenticate=58)), security=LOGIN)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("silent", [False, True], ids=["hangs up", "answers nothing"])
def test_a_broker_that_is_lost_during_the_login_has_not_refused_it(peer, connect, silent):
    """One that stops or is paused. A refusal would be a response."""
    release = threading.Event()

    def lost(api, version, number):
        if api == SASL_AUTHENTICATE and silent:
            release.wait(10)
        return sasl(api, version, number) if api == SASL_HANDSHAKE else None

    try:
        with pytest.raises(BrokerUnreachable, match="lost during SASL PLAIN: .*(closed the connection|timed out)"):
            connect(peer(lost), security=LOGIN, request_timeout_ms=1_000)
    finally:
        release.set()


def test_a_broker_that_is_lost_during_the_login_is_replaced_by_another_one(peer):
    def hang_up(api, version, number):
        return sasl(api, version, number) if api == SASL_HANDSHAKE else None

    def alive(api, version, number):
        return metadata(number) if api == METADATA else sasl(api, version, number)

    servers = tuple(("127.0.0.1", peer(behave).port) for behave in (hang_up, alive))
    with Cluster(ClientOptions(bootstrap_servers=servers, security=LOGIN, request_timeout_ms=5_000)) as cluster:
        assert cluster.cluster_id() == "c"


@pytest.mark.parametrize("tcp_timeout_ms", [None, 100], ids=["alone", "one of many"])
def test_a_broker_that_hangs_up_during_the_tls_handshake_is_unreachable(tmp_path, tcp_timeout_ms):
    """A slow handshake has the time that one broker alone would have."""

    def serve():
        accepted, _ = listener.accept()
        with accepted:
            accepted.recv(65_536)
            time.sleep(0.3)  # is slow

    security = Security(protocol="SSL", ca_location=str(issue(tmp_path).ca))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        address = ("127.0.0.1", port)
        options = ClientOptions(bootstrap_servers=(address,), security=security, tcp_timeout_ms=tcp_timeout_ms)
        with pytest.raises(BrokerUnreachable, match=rf"no connection to 127.0.0.1:{port}: closed .*TLS listener\?"):
            Connection(*address, options)
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("host", "port"),
    [("127.0.0.1", -1), ("127.0.0.1", 70_000), ("a" * 70, 9092), ("a..b", 9092), ("a\0b", 9092), ("\udcff", 9092)],
)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_an_invalid_address_is_an_unreachable_broker(host, port, protocol):
    """As metadata may bring it."""
    options = ClientOptions(bootstrap_servers=((host, port),), security=Security(protocol=protocol))
    with pytest.raises(BrokerUnreachable, match="no connection to"):
        Connection(host, port, options)


@pytest.mark.parametrize("size", [-1, 3, (1 << 30) + 1, 2**31 - 1, -(2**31)])
def test_a_frame_of_an_absurd_size_ends_the_connection_and_takes_no_memory(peer, connect, size):
    def absurd(api, version, number):
        return struct.pack(">ii", size, number) if api == METADATA else None

    connection = connect(peer(absurd))
    with pytest.raises(BrokerUnreachable, match=f"received a response size of {size} bytes"):
        connection.receive(ask(connection))
    assert not connection.usable


def test_a_frame_that_claims_a_gigabyte_and_ends_takes_no_memory(peer, connect):
    def liar(api, version, number):
        if api == METADATA:
            server.behave = lambda *_: None
            return struct.pack(">ii", 1 << 30, number)
        return None

    server = peer(liar)
    connection = connect(server, request_timeout_ms=300)
    before = psutil.Process().memory_info().rss
    with pytest.raises(BrokerUnreachable, match="no response: timed out"):
        connection.receive(ask(connection))
    assert psutil.Process().memory_info().rss - before < 64 << 20


def test_a_client_certificate_that_the_broker_rejects_is_reported_as_such(tmp_path):
    certificates = issue(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.broker_keystore)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED

    def serve():
        accepted, _ = listener.accept()
        with accepted:
            refusing = context.wrap_bio(incoming := ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_side=True)
            while received := accepted.recv(65_536):
                incoming.write(received)
                with contextlib.suppress(ssl.SSLError):
                    refusing.do_handshake()
                accepted.sendall(outgoing.read())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        port = listener.getsockname()[1]
        options = ClientOptions(
            bootstrap_servers=(("127.0.0.1", port),),
            security=Security(protocol="SSL", ca_location=str(certificates.ca)),
            request_timeout_ms=5_000,
        )
        with pytest.raises(AuthenticationFailed, match="rejected the TLS connection.*certificate.*Set the keystore"):
            Connection("127.0.0.1", port, options)
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("late_s", [0.0, 0.5, 5.0])
def test_what_comes_after_the_deadline_is_a_timeout_however_late_it_is(peer, connect, late_s):
    with pytest.raises(TimeoutError):
        connect(peer(lambda api, version, number: None))._within(time.monotonic() - late_s)
