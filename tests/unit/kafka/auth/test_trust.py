"""Whom a TLS context trusts, in handshakes without a network."""

from __future__ import annotations

import contextlib
import ssl

import pytest

from spark_kafka_eos.kafka.auth.authentication import tls_context
from spark_kafka_eos.options import Security
from tests.certificates import issue, issue_chain


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    return issue_chain(tmp_path_factory.mktemp("chain"))


@pytest.fixture(params=["this Python", "Python 3.13"])
def python(request, monkeypatch):
    """This release's default context, and one with the flags that it has since Python 3.13."""
    made = ssl.create_default_context

    def newer(**how):
        context = made(**how)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    if request.param == "Python 3.13":
        monkeypatch.setattr(ssl, "create_default_context", newer)


def shake_hands(client: ssl.SSLContext, keystore, name="broker.test"):
    """Both sides in turn until both have finished; raises what the client raises."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keystore)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there, server_hostname=name)
    answering = context.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        for side in (asking, answering):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()


def trusting(store) -> ssl.SSLContext:
    return tls_context(Security(protocol="SSL", ca_location=str(store)))


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("store", ["root", "intermediate", "leaf"])
def test_a_store_may_hold_any_certificate_of_the_brokers_chain_as_in_java(chain, store):
    shake_hands(trusting(getattr(chain, store)), chain.keystore)


@pytest.mark.usefixtures("python")
@pytest.mark.parametrize("store", ["root", "intermediate", "leaf"])
def test_whatever_a_store_holds_another_name_or_another_authoritys_broker_is_not_trusted(chain, store, tmp_path):
    client = trusting(getattr(chain, store))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        shake_hands(client, chain.keystore, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
        shake_hands(client, issue(tmp_path).broker_keystore)
