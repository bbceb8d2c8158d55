"""Ports for servers: free ones, and none that an outgoing connection may be given."""

import os
import socket

from spark_kafka_eos.testing.ports import free_ports, is_free
from tests.listening import listens


def test_free_ports_are_distinct_and_below_the_ranges_of_outgoing_connections():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768


def test_a_port_with_a_listener_is_not_free_and_is_again_once_it_is_gone():
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
    assert is_free(port)


def test_excluded_ports_are_not_handed_out():
    ports = free_ports(3)
    assert not set(free_ports(200, exclude=frozenset(ports))) & set(ports)


def test_a_server_of_the_tests_listens_only_if_its_own_process_does():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port)
        assert not listens(os.getppid(), port)
    assert not listens(os.getpid(), port)
