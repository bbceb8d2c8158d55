"""A scripted peer on the loopback interface, in place of a broker, and connections to it."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse

from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.options import ClientOptions, Security

ApiVersion = ApiVersionsResponse.ApiVersion
PLAINTEXT = Security()
API_VERSIONS, METADATA, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 3, 17, 36
OFFERED = [
    ApiVersion(api_key=API_VERSIONS, min_version=0, max_version=4),
    ApiVersion(api_key=METADATA, min_version=0, max_version=13),
    ApiVersion(api_key=SASL_HANDSHAKE, min_version=0, max_version=1),
    ApiVersion(api_key=SASL_AUTHENTICATE, min_version=0, max_version=2),
]


def encoded(response, version, correlation_id):
    response.API_VERSION = version
    response.with_header(correlation_id=correlation_id)
    return bytes(response.encode(framed=True, header=True))


def api_versions(version, correlation_id, **fields):
    return encoded(ApiVersionsResponse(**({"error_code": 0, "api_keys": OFFERED} | fields)), version, correlation_id)


def metadata(correlation_id, cluster_id="c"):
    return encoded(MetadataResponse(cluster_id=cluster_id), 12, correlation_id)


class Peer:
    """Listens, hands each request's (api key, version, correlation id) to `behave`, and sends the bytes it returns.

    None closes the connection; without `behave` everything is answered properly.
    """

    def __init__(self, behave=None):
        self.behave = behave or (lambda api, version, correlation_id: None)
        self.seen = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    @property
    def port(self):
        return self.listener.getsockname()[1]

    def run(self):
        try:
            connection, _ = self.listener.accept()
        except OSError:
            return
        self.accepted = connection
        with connection:
            while header := self.request(connection):
                self.seen.append(header)
                answer = api_versions(header[1], header[2]) if header[0] == API_VERSIONS else None
                answer = self.behave(*header) or answer
                if answer is None:
                    return
                connection.sendall(answer)

    def request(self, connection):
        try:
            prefix = connection.recv(4, socket.MSG_WAITALL)
            if len(prefix) < 4:
                return None
            body = connection.recv(struct.unpack(">i", prefix)[0], socket.MSG_WAITALL)
        except OSError:
            return None
        return struct.unpack_from(">hhi", body)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def peer():
    peers = []

    def start(behave=None):
        peers.append(Peer(behave))
        return peers[-1]

    yield start
    for started in peers:
        started.close()


@pytest.fixture
def connect():
    opened = []

    def connect(peer, *, request_timeout_ms=5_000, security=PLAINTEXT):
        options = ClientOptions(
            bootstrap_servers=(("127.0.0.1", peer.port),), request_timeout_ms=request_timeout_ms, security=security
        )
        opened.append(Connection("127.0.0.1", peer.port, options))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def ask(connection):
    return connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
