from __future__ import annotations

import pytest

from spark_kafka_eos.options import source_options
from spark_kafka_eos.reading.offset_planner import OffsetPlanner


@pytest.fixture
def open_positions():
    def build(brokers, **given):
        given = {"subscribe": "t"} | given if "subscribePattern" not in given and "assign" not in given else given
        options = source_options({"kafka.bootstrap.servers": "broker:9092"} | given)
        return OffsetPlanner(options, brokers.cluster(), clock=brokers.clock)

    return build
