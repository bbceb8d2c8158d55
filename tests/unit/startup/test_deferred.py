"""In processes of their own: what is loaded here must not depend on what other tests have loaded."""

import subprocess
import sys

import pytest


def run_as_user(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def run(code: str) -> str:
    """As one of Spark's own processes, which have this module loaded before anything of ours."""
    return run_as_user(f"import pyspark.worker_util, spark_kafka_eos.spark\n{code}")


def test_a_users_own_process_imports_kafka_python_as_usual():
    loaded = "import sys, spark_kafka_eos.kafka.protocol.groups; print(type(sys.modules['kafka']).__name__)"
    assert run_as_user(loaded) == "module"
    assert run_as_user(
        "import pyspark.sql, spark_kafka_eos.kafka.protocol.groups, sys; print('kafka.admin' in sys.modules)"
    ) == ("True")


def test_the_protocol_is_loaded_without_the_clients():
    loaded = (
        "import sys, spark_kafka_eos.kafka.protocol.groups; "
        "print(sorted({'kafka.protocol', 'kafka.admin'} & set(sys.modules)))"
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
def test_the_clients_are_available_on_request(use: str):
    assert run(f"import spark_kafka_eos.kafka.protocol.groups\n{use}") == "KafkaConsumer"


def test_threads_that_ask_for_the_clients_at_the_same_time_all_get_them():
    """A function for `foreachPartition` may have threads of its own."""
    threads = "from concurrent.futures import ThreadPoolExecutor\nfrom threading import Barrier\nstart = Barrier(4)\n"
    threads += (
        "def use(number):\n    start.wait()\n    from kafka import KafkaConsumer\n    return KafkaConsumer.__name__\n"
    )
    threads += "print(set(ThreadPoolExecutor(4).map(use, range(4))))"
    assert run(f"import spark_kafka_eos.kafka.protocol.groups\n{threads}") == "{'KafkaConsumer'}"


def test_a_package_that_is_loaded_already_stays_as_it_is():
    before = "import sys, kafka; before = kafka; import spark_kafka_eos.kafka.protocol.groups"
    assert run(f"{before}; print(sys.modules['kafka'] is before)") == "True"


def test_what_the_package_does_not_define_is_still_missing():
    assert run("import spark_kafka_eos.kafka.protocol.groups, kafka; print(hasattr(kafka, 'nonsense'))") == "False"


def test_a_python_without_the_package_still_finds_the_format_which_tells_what_is_missing():
    """Spark imports the format before it is used; an error here would say that there is no such format."""
    without = "import importlib.util; find = importlib.util.find_spec\n"
    without += "def find_spec(name, package=None):\n"
    without += "    if name == 'kafka': return None\n"
    without += "    if name.startswith('kafka.'): raise ModuleNotFoundError(name)\n"
    without += "    return find(name, package)\n"
    without += "importlib.util.find_spec = find_spec\n"
    code = f"{without}import pyspark.worker_util, pyspark_kafka_eos; print(pyspark_kafka_eos.DefaultSource.name())"
    assert run_as_user(code) == "kafka-eos"


def test_a_sinks_commit_loads_neither_numpy_nor_pyarrow():
    """A query's first batch waits for it."""
    imports = "import sys, pyspark.sql.worker.python_streaming_sink_runner, spark_kafka_eos.spark.sink"
    assert run(f"{imports}; print(sorted({{'numpy', 'pyarrow', 'pandas'}} & set(sys.modules)))") == "[]"


def test_a_sources_process_loads_nothing_that_only_few_queries_need():
    """A query waits for it to start."""
    unwanted = ["ssl", "kafka.protocol.consumer.fetch", "kafka.protocol.producer.transaction"]
    unwanted += ["spark_kafka_eos.options.sink", "spark_kafka_eos.kafka.protocol.groups"]
    planned = "import sys, spark_kafka_eos.reading.offset_planner, spark_kafka_eos.options as o; o.source_options"
    assert run(f"{planned}; print(sorted(set({unwanted}) & set(sys.modules)))") == "[]"


def test_a_sources_first_batch_loads_nothing_of_consumer_groups():
    given = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
    code = f"""
import sys
from spark_kafka_eos.options import source_options
from spark_kafka_eos.spark.source import KafkaEosStreamReader
reader = KafkaEosStreamReader(source_options({given}))
reader.commit({{"t": {{"0": 1}}}})
print('spark_kafka_eos.kafka.protocol.groups' in sys.modules)"""
    assert run(code) == "False"


@pytest.mark.parametrize(
    "use",
    [
        "from kafka.protocol import consumer; print(consumer.FetchRequest.__name__)",
        "import kafka.protocol.consumer; print(kafka.protocol.consumer.FetchRequest.__name__)",
    ],
)
def test_a_deferred_part_of_the_protocol_is_complete_however_it_is_used(use: str):
    assert run(f"import spark_kafka_eos.kafka.protocol.offsets\n{use}") == "FetchRequest"
