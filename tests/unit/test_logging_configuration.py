"""conf/logging.ini as a driver loads it: it shows the batches of the connector, and no call with options from py4j."""

import subprocess
import sys

from tests.pages import ROOT

LOADED = """
import logging, logging.config
logging.config.fileConfig("conf/logging.ini", disable_existing_loggers=False)
logging.getLogger("spark_kafka_eos.writing.commit").info("batch 3 committed")
logging.getLogger("spark_kafka_eos.kafka.protocol").debug("a request")
logging.getLogger("py4j.clientserver").warning("a call with a password")
logging.getLogger("somebody.else").info("chatter")
logging.getLogger("somebody.else").warning("a warning")
"""


def test_the_connectors_batches_are_logged_and_py4js_calls_are_not():
    done = subprocess.run(
        [sys.executable, "-c", LOADED], check=True, capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.stdout == ""
    assert [line.split(maxsplit=2)[2] for line in done.stderr.splitlines()] == [
        "INFO    spark_kafka_eos.writing.commit: batch 3 committed",
        "WARNING somebody.else: a warning",
    ]
