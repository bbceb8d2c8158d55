"""A broker that answers slowly, and then not at all."""

from __future__ import annotations

import pytest

from spark_kafka_eos.errors import BrokerUnreachable
from spark_kafka_eos.testing.proxy import Proxy
from tests.producing import produce
from tests.reading import table

pytestmark = pytest.mark.broker

VALUES = [b"%d" % number * 20 for number in range(3_000)]
SMALL = {"kafka.max.partition.fetch.bytes": "10000", "kafka.request.timeout.ms": "500"}
SLOWLY = "Fetch:1-2:delay=0.2"


@pytest.fixture
def filled(bootstrap, topic):
    name = topic("silent")
    for start in range(0, len(VALUES), 500):  # a record batch each, or more
        produce(bootstrap, name, VALUES[start : start + 500])
    return name


@pytest.mark.parametrize("silence", ["drop-request", "drop-response", "cut-response"])
def test_what_a_silent_broker_did_not_answer_is_asked_for_again(bootstrap, filled, silence):
    with Proxy(bootstrap, [SLOWLY, f"Fetch:3-5:{silence}"]) as proxy:
        assert table(proxy.bootstrap, filled, **SMALL)["value"].to_pylist() == VALUES
        assert [fault.fired for fault in proxy.faults] == [2, 3]


def test_a_broker_that_stays_silent_ends_the_read_and_the_next_one_has_everything(bootstrap, filled):
    with Proxy(bootstrap, [SLOWLY, "Fetch:3-:drop-request"]) as proxy:
        with pytest.raises(BrokerUnreachable, match="timed out"):
            table(proxy.bootstrap, filled, **SMALL, **{"kafka.delivery.timeout.ms": "2000"})
        proxy.clear()
        assert table(proxy.bootstrap, filled, **SMALL)["value"].to_pylist() == VALUES
