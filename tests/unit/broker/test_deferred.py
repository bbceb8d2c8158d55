"""In processes of their own: what is loaded here must not depend on what other tests have loaded."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_protocol_is_loaded_without_the_clients():
    loaded = (
        "import sys, spark_kafka_eos.broker.groups; print(sorted({'kafka.protocol', 'kafka.admin'} & set(sys.modules)))"
    )
    assert run(loaded) == "['kafka.protocol']"


@pytest.mark.parametrize(
    "use",
    [
        "import kafka; print(kafka.KafkaConsumer.__name__)",
        "from kafka import KafkaConsumer; print(KafkaConsumer.__name__)",
        "from kafka import *; print(KafkaConsumer.__name__)",
        "import kafka.consumer; print(kafka.KafkaConsumer.__name__)",
    ],
)
def test_whoever_asks_for_the_clients_gets_them(use: str):
    assert run(f"import spark_kafka_eos.broker.groups\n{use}") == "KafkaConsumer"


def test_a_package_that_is_loaded_already_stays_as_it_is():
    before = "import sys, kafka; before = kafka; import spark_kafka_eos.broker.groups"
    assert run(f"{before}; print(sys.modules['kafka'] is before)") == "True"


def test_what_the_package_does_not_define_is_still_missing():
    assert run("import spark_kafka_eos.broker.groups, kafka; print(hasattr(kafka, 'nonsense'))") == "False"


def test_a_sinks_commit_loads_neither_numpy_nor_pyarrow():
    """Its process lives for one micro-batch."""
    imports = "import sys, pyspark.sql.worker.python_streaming_sink_runner, spark_kafka_eos.spark.sink"
    assert run(f"{imports}; print(sorted({{'numpy', 'pyarrow', 'pandas'}} & set(sys.modules)))") == "[]"
