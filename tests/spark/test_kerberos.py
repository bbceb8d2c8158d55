"""Kerberos with a real KDC and a real broker, for a driver and its executors.

Slow, because gssapi has no wheel for Linux: `make test-slow` compiles it, which needs a compiler and libkrb5-dev.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from spark_kafka_eos.errors import AuthenticationFailed, BrokerUnreachable
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.connection import Connection
from spark_kafka_eos.options import ClientOptions, source_options
from spark_kafka_eos.testing.driver import Driver, python_environment, spark_submit
from spark_kafka_eos.testing.embedded import JVM_OPTIONS, EmbeddedKafka
from tests.kdc import Realm, serve
from tests.reading import read_committed

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

JOB = Path(__file__).parents[2] / "jobs" / "copy_topic.py"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
SESSION_MS, TICKET_SECONDS = 2_000, 5


@dataclass(frozen=True)
class Site:
    kafka: EmbeddedKafka
    realm: Realm

    def properties(self, login: str, service: str = "kafka") -> dict[str, str]:
        """client.properties, in Java's names."""
        return {
            "bootstrap.servers": self.kafka.bootstrap_of("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": service,
            "sasl.jaas.config": f"{MODULE} {login};",
            "delivery.timeout.ms": "5000",
        }

    def keytab(self, name: str = "orders") -> str:
        return f'useKeyTab=true keyTab="{self.realm.keytab}" principal="{self.realm.principal(name)}"'


@pytest.fixture(scope="module")
def site(tmp_path_factory, kafka_version):
    folder = tmp_path_factory.mktemp("kdc")
    with (
        serve(folder, "orders", "kafka/127.0.0.1", ticket_seconds=TICKET_SECONDS) as realm,
        pytest.MonkeyPatch.context() as environment,
    ):
        environment.setenv("KRB5_CONFIG", str(realm.config))
        of_broker = f'keyTab="{realm.keytab}" principal="{realm.principal("kafka/127.0.0.1")}"'
        listener = {
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "gssapi.sasl.jaas.config": f"{MODULE} useKeyTab=true storeKey=true {of_broker};",
            "gssapi.connections.max.reauth.ms": SESSION_MS,
        }
        options = (*JVM_OPTIONS, f"-Djava.security.krb5.conf={folder / 'krb5.conf'}")
        with EmbeddedKafka(kafka_version, listeners={"SASL_PLAINTEXT": listener}, jvm_options=options) as kafka:
            kafka.create_topic("guarded-in", 3)
            kafka.create_topic("guarded-out", 2)
            yield Site(kafka=kafka, realm=realm)


def client(properties: dict[str, str]) -> ClientOptions:
    given = {f"kafka.{name}": value for name, value in properties.items()}
    return source_options({"subscribe": "any"} | given).client


def connect(properties: dict[str, str]) -> None:
    options = client(properties)
    Connection(*options.bootstrap_servers[0], options).close()


def test_a_keytab_outlives_sessions_and_tickets(site):
    opened = []

    def counted(*arguments):
        opened.append(time.monotonic())
        return Connection(*arguments)

    with Cluster(client(site.properties(site.keytab())), connect=counted) as cluster:
        end = time.monotonic() + 2 * TICKET_SECONDS
        while time.monotonic() < end:
            assert "guarded-in" in cluster.topic_names()
    assert len(opened) >= 5
    assert max(later - earlier for earlier, later in itertools.pairwise(opened)) < SESSION_MS / 1000


def test_a_ticket_cache_serves_until_its_ticket_has_expired_and_then_the_error_says_so(site, tmp_path):
    import gssapi  # what collects this test need not have it

    cache = f"FILE:{tmp_path}/cache"
    name = gssapi.Name(site.realm.principal("orders"), gssapi.NameType.kerberos_principal)
    store = {"client_keytab": str(site.realm.keytab), "ccache": cache}
    lifetime = gssapi.Credentials(name=name, usage="initiate", store=store).lifetime  # as kinit does
    assert lifetime <= TICKET_SECONDS
    properties = site.properties(f'useTicketCache=true ticketCache="{cache}"')
    connect(properties)
    time.sleep(lifetime + 1)
    with pytest.raises(AuthenticationFailed, match=rf"Ticket expired\..*Renew the ticket in {cache} \(kinit\)"):
        connect(properties)


@pytest.mark.parametrize(
    ("login", "service", "why"),
    [
        (lambda site: site.keytab("nobody"), "kafka", "Check principal, keytab .*all.keytab"),
        (lambda site: site.keytab(), "hdfs", "Server hdfs/127.0.0.1@EXAMPLE.COM not found in Kerberos database"),
        (lambda site: 'useTicketCache=true ticketCache="/none"', "kafka", "Renew the ticket in /none"),
    ],
)
def test_a_login_that_fails_says_why(site, login, service, why):
    with pytest.raises(AuthenticationFailed, match=f"Kerberos login at 127.0.0.1.* failed: .*{why}"):
        connect(site.properties(login(site), service))


def test_a_kdc_that_does_not_answer_may_be_asked_again(site, tmp_path, monkeypatch):
    config = re.sub(r"kdc = .*", "kdc = tcp/127.0.0.1:1", site.realm.config.read_text())
    (tmp_path / "krb5.conf").write_text(config)
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    keytab = shutil.copy(site.realm.keytab, tmp_path)  # tickets are kept by its name
    login = f'useKeyTab=true keyTab="{keytab}" principal="{site.realm.principal("orders")}"'
    with pytest.raises(BrokerUnreachable, match="Cannot contact any KDC"):
        connect(site.properties(login))


def test_a_query_logs_in_from_the_driver_and_the_executors(site, tmp_path):
    producer = Producer({"bootstrap.servers": site.kafka.bootstrap})
    for number in range(500):
        producer.produce("guarded-in", key=f"k{number}", value=f"v{number}")
    producer.flush()
    properties = tmp_path / "client.properties"
    given = site.properties(site.keytab()) | {"delivery.timeout.ms": "60000"}
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    arguments = ["--properties", str(properties), "--from", "guarded-in", "--to", "guarded-out"]
    arguments += ["--checkpoint", str(tmp_path / "checkpoint"), "--available-now", "--max-offsets-per-trigger", "200"]
    arguments += ["--append-mode", "executors"]
    environment = python_environment()
    of_executors = {"PYTHONPATH": environment["PYTHONPATH"], "KRB5_CONFIG": str(site.realm.config)}
    conf = ["--master", "local-cluster[2,1,1024]", "--conf", "spark.ui.enabled=false"]
    conf += ["--conf", "spark.sql.shuffle.partitions=2"]
    conf += [word for each in of_executors.items() for word in ("--conf", f"spark.executorEnv.{'='.join(each)}")]
    environment["SPARK_HOME"] = str(spark_submit().parent.parent)
    with Driver(JOB, arguments, conf=conf, env=environment, log=tmp_path / "driver.log") as driver:
        driver.wait(timeout=300)
    copied = sorted(bytes(message.value() or b"") for message in read_committed(site.kafka.bootstrap, "guarded-out"))
    assert copied == sorted(f"v{number}".encode() for number in range(500))
    # The plain listener let in the producer and the reader; the query had only the other.
    assert "Successfully authenticated client: authenticationID=orders@EXAMPLE.COM" in site.kafka.log()
