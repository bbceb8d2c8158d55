"""A Kerberos realm for tests: Hadoop's MiniKdc on loopback, with principals in one keytab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_eos.testing.jars import Bundle, Module, files
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.supervised import SupervisedProcesses

MINIKDC = Bundle(
    name="minikdc",
    version="3.4.1",
    modules=(Module(organisation="org.apache.hadoop", name="hadoop-minikdc", revision="3.4.1"),),
)
_REALM = "EXAMPLE.COM"
_SETTINGS = """\
org.name=EXAMPLE
org.domain=COM
instance=DefaultKrbServer
kdc.bind.address=127.0.0.1
kdc.port=0
transport=TCP
debug=false
max.ticket.lifetime=86400000
max.renewable.lifetime=604800000
"""
# Tickets are for the address that a client connects to, and end soon.
_CLIENT = "[libdefaults]\n    rdns = false\n    dns_canonicalize_hostname = false\n    ticket_lifetime = {}s\n"


@dataclass(frozen=True)
class Realm:
    """`config`: krb5.conf, for `KRB5_CONFIG`. `keytab` has the keys of all principals."""

    config: Path
    keytab: Path

    def principal(self, name: str) -> str:
        return f"{name}@{_REALM}"


@contextmanager
def serve(folder: Path, *principals: str, ticket_seconds: int) -> Iterator[Realm]:
    """A KDC that knows `principals`, without their realm. Clients that use `config` ask for short tickets."""
    settings, keytab, log = folder / "kdc.properties", folder / "all.keytab", folder / "kdc.log"
    settings.write_text(_SETTINGS)
    class_path = ":".join(map(str, files(MINIKDC)))
    processes = SupervisedProcesses()
    try:
        main: tuple[str | Path, ...] = ("-cp", class_path, "org.apache.hadoop.minikdc.MiniKdc")
        kdc = processes.spawn([java(), *main, folder, settings, keytab, *principals], log=log)
        deadline = time.monotonic() + 60
        while "Do <CTRL-C> or kill" not in log.read_text():
            assert kdc.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)  # there is no event for a server that listens
        config = folder / "client.conf"
        made = (folder / "krb5.conf").read_text()
        config.write_text(made.replace("[libdefaults]\n", _CLIENT.format(ticket_seconds)))
        yield Realm(config=config, keytab=keytab)
    finally:
        processes.close()
        kdc.wait()
