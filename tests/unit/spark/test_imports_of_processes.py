"""What each kind of Spark's Python processes imports on behalf of a query, besides what Spark imports into it.

A query's first batch waits for these processes, one after another. Each case runs in a process of its own, does what
Spark has it do as far as that needs no broker, and lists what that imported: packages of ours, packages of
others, and kafka-python's messages.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import NamedTuple

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_eos.options import sink_options, source_options
from spark_kafka_eos.spark.sink import KafkaEosStreamWriter
from spark_kafka_eos.spark.source import KafkaEosStreamReader

SOURCE = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders"}
SINK = {
    "kafka.bootstrap.servers": "b:1",
    "kafka.transactional.id": "t",
    "topic": "copies",
    "checkpointLocation": "/nowhere",
}
SCHEMA = StructType([StructField("value", BinaryType())])

# Not of the standard library, or of it and slow to load.
LISTED = """
import sys
slow = {"asyncio", "http", "multiprocessing", "sqlite3", "ssl", "unittest", "xml"}
rooms = {"auth", "fetching", "operators", "producing", "protocol", "wire"}
messages = {"admin", "consumer", "metadata", "producer", "sasl"}

def listed(name):
    package, _, inner = name.partition(".")
    part = inner.split(".")
    if package == "kafka":
        is_message = part[0] == "protocol" and part[1:2] and part[1] in messages and part[2:]
        return name if is_message or part[0] not in ("", "errors", "protocol", "util") else package
    if package == "spark_kafka_eos":
        inside = part[1] if part[1:] and part[1] in rooms else ""
        return f"{part[0]}/{inside}" if part[0] in ("kafka", "tools") else part[0] or package
    known = package in sys.stdlib_module_names or package.startswith(("_cython", "cython_runtime"))
    return None if known and package not in slow else package

def imported(before):
    return sorted({listed(name) for name in set(sys.modules) - before} - {None, "pyspark", "py4j", "spark_kafka_eos"})
"""

FILES = {"errors", "kafka", "kafka/", "lazy", "moved", "spark", "startup"}  # kafka: deferred, not executed
CONNECTION = {
    "kafka/auth",
    "google_crc32c",
    "kafka",
    "options",
    "kafka/protocol",
    "kafka/wire",
} | {f"kafka.protocol.metadata.{each}" for each in ("api_versions", "find_coordinator", "metadata")}


class Process(NamedTuple):
    """`runs` is PySpark's module, `does` what ours do there."""

    runs: str
    does: str
    imports: set[str]
    given: bytes = b""


PROCESSES = {
    "finds the data source": Process(
        "pyspark.sql.worker.lookup_data_sources", "import pyspark_kafka_eos", FILES | {"pyspark_kafka_eos"}
    ),
    "creates the source": Process(
        "pyspark.sql.worker.create_data_source",
        f"from spark_kafka_eos.spark.datasource import KafkaEosDataSource\nKafkaEosDataSource({SOURCE}).schema()",
        FILES | {"kafka/auth", "options", "reading"},
    ),
    "plans a read": Process(
        "pyspark.sql.worker.plan_data_source_read",
        "from spark_kafka_eos.spark.datasource import KafkaEosDataSource\n"
        f"source = KafkaEosDataSource({SOURCE})\n"
        "source.streamReader(source.schema())",
        FILES | {"kafka/auth", "options", "reading", "source_offset"},
    ),
    "plans a stream's batches": Process(
        "pyspark.sql.streaming.python_streaming_source_runner",
        "from spark_kafka_eos.spark.datasource import KafkaEosDataSource\n"
        f"source = KafkaEosDataSource({SOURCE})\n"
        "source.streamReader(source.schema())._planner",
        FILES | CONNECTION | {"reading", "source_offset", "kafka.protocol.consumer.offsets"},
    ),
    "plans a write": Process(
        "pyspark.sql.worker.write_into_data_source",
        "from spark_kafka_eos.options import WriteKind, sink_options\n"
        "from spark_kafka_eos.spark.sink import KafkaEosStreamWriter\n"
        "from pyspark.sql.types import BinaryType, StructField, StructType\n"
        "schema = StructType([StructField('value', BinaryType())])\n"
        f"KafkaEosStreamWriter(sink_options({SINK}, WriteKind.STREAM), schema)\n"
        "import spark_kafka_eos.preflight.run",
        FILES
        | CONNECTION
        | {"appending", "ledger", "preflight", "reading"}
        | {f"kafka.protocol.{each}" for each in ("consumer.group", "producer.transaction")},
    ),
    "reads records": Process(
        "pyspark.worker",
        "import pickle, sys\n"
        "reader = pickle.loads(sys.stdin.buffer.read())\n"
        "import spark_kafka_eos.reading.records as records\n"
        "from spark_kafka_eos.kafka.fetching.fetch_steps import Fetched\n"
        "from spark_kafka_eos.kafka.partitions import OffsetRange, TopicPartition\n"
        "from spark_kafka_eos.kafka.wire.record_batch import scan\n"
        "from spark_kafka_eos.kafka.wire.single import encode_record\n"
        "at = TopicPartition('orders', 0)\n"
        "log = memoryview(encode_record(b'key', b'value', 5))\n"
        "fetched = Fetched(partition=at, buffer=log, batches=list(scan(log)), aborted=(), next_offset=1,\n"
        "                  high_watermark=1, last_stable_offset=1)\n"
        "rows, = records._rows(fetched, OffsetRange(partition=at, start=0, end=1), reader._options, None, 1 << 20)\n"
        "assert rows.num_rows == 1",
        FILES
        | CONNECTION
        | {"kafka/fetching", "numpy", "pyarrow", "reading", "source_offset"}
        | {"kafka.protocol.consumer.fetch", "kafka.protocol.consumer.offsets"},
        pickle.dumps(KafkaEosStreamReader(source_options(SOURCE))),
    ),
    "encodes and stages rows": Process(
        "pyspark.worker",
        "import pickle, sys\n"
        "pickle.loads(sys.stdin.buffer.read())\n"
        "import spark_kafka_eos.spark.encode_stage as stage\n"
        "import pyarrow as pa\n"
        "from spark_kafka_eos.appending.blocks import BlockEncoder, EncodeSettings, Target\n"
        "value = pa.Array.from_buffers(pa.binary(), 2, [None, pa.py_buffer(bytes(12)), pa.py_buffer(b'')])\n"
        "rows, = stage.arrow_rows([pa.RecordBatch.from_arrays([value], ['value'])])\n"
        "encoder = BlockEncoder(EncodeSettings(topic='a', targets={'a': Target(partitions=2)}), 0, None, lambda: 5)\n"
        "assert sum(block.records for block in [*encoder.add(rows), *encoder.finish()]) == 2\n"
        "stage.report_row('done')",
        FILES | CONNECTION | {"appending", "dead_letters", "kafka/producing", "numpy", "observe", "pyarrow", "reading"},
        pickle.dumps(KafkaEosStreamWriter(sink_options(SINK), SCHEMA)),
    ),
    "commits": Process(
        "pyspark.sql.worker.python_streaming_sink_runner",
        "from spark_kafka_eos.options import WriteKind, sink_options\n"
        f"sink_options({SINK}, WriteKind.STREAM)\n"
        "import spark_kafka_eos.spark.checkpoint, spark_kafka_eos.spark.sink, spark_kafka_eos.spark.sink_commit",
        FILES
        | CONNECTION
        | {
            "appending",
            "dead_letters",
            "failpoints",
            "kafka/fetching",
            "kafka/producing",
            "ledger",
            "micro_batch",
            "observe",
            "preflight",
            "reading",
            "source_offset",
            "transaction",
        }
        | {f"kafka.protocol.{each}" for each in ("consumer.fetch", "consumer.group", "consumer.offsets")}
        | {f"kafka.protocol.{each}" for each in ("producer.produce", "producer.transaction")},
    ),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_imports_what_its_part_of_the_query_needs(process: str):
    runs, does, expected, given = PROCESSES[process]
    code = f"{LISTED}\nimport {runs}\nbefore = set(sys.modules)\n{does}\nprint(*imported(before))"
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
    assert set(done.stdout.decode().split()) == expected


FORKED = """
import importlib, sys
from kafka_eos_python.server import MODULES
for module in MODULES:
    importlib.import_module(module)
before = set(sys.modules)
"""


@pytest.mark.parametrize("process", PROCESSES)
def test_a_forked_process_has_imported_all_of_it_already(process: str):
    _, does, _, given = PROCESSES[process]
    code = f"{LISTED}\n{FORKED}\n{does}\nprint(*imported(before))"
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, check=True)
    # pandas is imported in each process that needs it (kafka_eos_python.give_way).
    assert {name.partition(".")[0] for name in done.stdout.decode().split()} <= {"pandas", "pytz", "dateutil", "six"}


READS = f"""
import spark_kafka_eos.spark.source as source
from spark_kafka_eos.options import source_options
source._records((), source_options({SOURCE}))
"""

ENCODES = f"""
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark.sink import KafkaEosStreamWriter
schema = StructType([StructField('value', BinaryType())])
with suppress(AssertionError):  # there is no task
    KafkaEosStreamWriter(sink_options({SINK}), schema)._stage(iter(()), 'a', None, None)
"""

SPARED = """
import gc, sys
import pyspark.worker
from contextlib import suppress

class Told:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print(gc.get_freeze_count() > len(sys.modules))

sys.meta_path.insert(0, Told())
"""


@pytest.mark.parametrize(
    ("does", "last"), [(READS, "spark_kafka_eos.reading.records"), (ENCODES, "spark_kafka_eos.spark.encode_stage")]
)
def test_the_collector_does_not_look_through_pyspark_while_a_task_imports_the_rest(does: str, last: str):
    code = SPARED.format(module=last) + does
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["True"]


PANDAS = f"""
import sys
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.spark.sink import KafkaEosStreamWriter

def rows():
    print("pandas" in sys.modules)
    yield from ()

TaskContext._getOrCreate()._partitionId = 0
writer = KafkaEosStreamWriter(sink_options({SINK}), StructType([StructField('value', BinaryType())]))
print("pandas" in sys.modules)
writer._stage(rows(), 'a', None, None)
"""


def test_the_sinks_task_imports_pandas_before_it_waits_for_rows_because_pyspark_asks_for_it_afterwards():
    done = subprocess.run([sys.executable, "-c", PANDAS], capture_output=True, check=True)
    assert done.stdout.decode().split() == ["False", "True"]
