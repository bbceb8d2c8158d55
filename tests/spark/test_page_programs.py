"""The programs of README and guides, each as a script in an empty folder, with the wheel and without the checkout.

`test_readme.py` runs the same blocks in every run, in the tests' own session.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

from lab.jars import built_in_connector
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from tests.pages import EXAMPLES, EXAMPLES_ELSEWHERE, ROOT, compare, here, python_blocks
from tests.reading import read_committed
from tests.wheel import wheel_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

# What the pages leave to the reader: a query of an example goes on until it is stopped.
FINISH = """
for query_of_example in SparkSession.builder.getOrCreate().streams.active:
    query_of_example.processAllAvailable()
    query_of_example.stop()
"""
CHECK = """
def check(found, shown):
    assert found == shown, (found, shown)
"""
ELSEWHERE = """
import spark_kafka_eos
assert "site-packages" in spark_kafka_eos.__file__, spark_kafka_eos.__file__
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("wheel") / "environment"
    # Spark gives a Python process ten seconds to start, and compiling PySpark takes that on a machine under load.
    environment = wheel_environment(folder) | {"PYSPARK_PYTHON": str(folder / "bin" / "kafka-eos-python")}
    # Spark's own connector, which pages compare with, is a package of its own.
    connector = ",".join(map(str, jars.files(built_in_connector(pyspark.__version__))))
    return environment | {"PYSPARK_SUBMIT_ARGS": f"--jars {connector} pyspark-shell"}


def run(program: str, folder: Path, environment: dict[str, str]) -> None:
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        ["python", "program.py"],
        cwd=folder,
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-6_000:]}"


def test_the_readmes_program_waits_for_its_end_and_writes_the_paid_orders(
    kafka: EmbeddedKafka, tmp_path: Path, environment: dict[str, str]
) -> None:
    for topic in ("orders", "orders-paid"):
        kafka.create_topic(topic, partitions=3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(300):
        producer.produce("orders", key=str(number), value=f'{{"paid": {"true" if number % 3 == 0 else "false"}}}')
    producer.flush()
    (program,) = python_blocks(ROOT / "README.md")
    run(here(program, kafka.bootstrap, str(tmp_path), ""), tmp_path, environment)
    keys = [int(bytes(found.key() or b"")) for found in read_committed(kafka.bootstrap, "orders-paid")]
    assert sorted(keys) == list(range(0, 300, 3))


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_programs_of_a_guide_run_as_one_script(
    page: str, kafka: EmbeddedKafka, tmp_path: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    for topic in EXAMPLES[page]:
        kafka.create_topic(topic, partitions=3)
    second = ""
    for topic in EXAMPLES_ELSEWHERE.get(page, ()):
        another: EmbeddedKafka = request.getfixturevalue("elsewhere")
        another.create_topic(topic, partitions=3)
        second = another.bootstrap
    shutil.copytree(ROOT / "conf", tmp_path / "conf")  # the files that are ready to copy
    given = (kafka.bootstrap, str(tmp_path), second)
    blocks = [here(compare(block), *given) for block in python_blocks(ROOT / page)]
    head = f"from pyspark.sql import Row, SparkSession\n{CHECK}{ELSEWHERE}"
    run(head + FINISH.join([*blocks, ""]), tmp_path, environment)
