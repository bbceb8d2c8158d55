"""What Spark's planning processes meet: names, schemas and errors, without any broker."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import pyspark_kafka_eos
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.spark.datasource import KafkaEosDataSource
from spark_kafka_eos.spark.features import require_packages
from spark_kafka_eos.spark.schema import source_schema

# An address of the reserved domain: whoever did I/O in a constructor would fail here.
OPTIONS = {"kafka.bootstrap.servers": "broker.invalid:9092", "subscribe": "orders"}


def test_spark_finds_the_source_under_its_name() -> None:
    assert pyspark_kafka_eos.DefaultSource is KafkaEosDataSource
    assert KafkaEosDataSource.name() == "kafka-eos"


def test_the_schema_follows_include_headers() -> None:
    assert "headers" not in KafkaEosDataSource(OPTIONS).schema().names
    assert KafkaEosDataSource(OPTIONS | {"includeheaders": "true"}).schema().names[-1] == "headers"


def test_a_row_may_be_an_offset_range() -> None:
    source = KafkaEosDataSource(OPTIONS | {"rows": "offsetranges", "includeheaders": "true"})
    assert source.schema().simpleString() == (
        "struct<topic:string,partition:int,fromOffset:bigint,untilOffset:bigint,topicId:string,leaderEpoch:int>"
    )


@pytest.mark.parametrize("make", [KafkaEosDataSource.reader, KafkaEosDataSource.streamReader])
def test_a_choice_among_the_columns_of_offset_ranges_is_refused(make: Callable[..., object]) -> None:
    with pytest.raises(ConfigurationError, match="cannot select columns of offset ranges"):
        make(KafkaEosDataSource(OPTIONS | {"rows": "offsetRanges"}), StructType([StructField("topic", StringType())]))


@pytest.mark.parametrize("make", [KafkaEosDataSource.reader, KafkaEosDataSource.streamReader])
def test_readers_are_built_and_pickled_without_a_broker(make: object) -> None:
    reader = make(KafkaEosDataSource(OPTIONS), source_schema(include_headers=False))  # type: ignore[operator]
    assert type(pickle.loads(pickle.dumps(reader))) is type(reader)


def test_a_python_without_the_packages_that_are_needed_is_named_with_what_to_set() -> None:
    with pytest.raises(ImportError) as caught:
        require_packages(lambda module: None if module in ("pyarrow", "kafka") else module)
    assert f"runs on {sys.executable}, which lacks pyarrow, kafka-python: install" in str(caught.value)
    assert "PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON" in str(caught.value)


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigurationError, match="maxOffsetPerTrigger.*maxOffsetsPerTrigger"):
        KafkaEosDataSource(OPTIONS | {"maxOffsetPerTrigger": "5"}).schema()


def test_missing_bootstrap_servers_are_named() -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap\.servers"):
        KafkaEosDataSource({"subscribe": "orders"}).schema()


@pytest.mark.parametrize("way", ["reader", "streamReader", "writer", "streamWriter"])
def test_a_private_key_that_a_plan_would_show_is_refused_before_anything_else(way: str) -> None:
    key = {"kafka.ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nk3y\n-----END PRIVATE KEY-----"}
    source = KafkaEosDataSource(OPTIONS | key)
    overwrite = {"overwrite": False} if way.lower().endswith("writer") else {}
    with pytest.raises(ConfigurationError, match=r"kafka\.ssl\.keystore\.key.*query plans") as caught:
        getattr(source, way)(source_schema(include_headers=False), **overwrite)
    assert "k3y" not in str(caught.value)


def test_a_schema_that_is_not_a_choice_of_columns_is_refused() -> None:
    own = StructType([StructField("value", StringType())])
    with pytest.raises(ConfigurationError, match=r"schema.*may only select.*\(value:string\)"):
        KafkaEosDataSource(OPTIONS).streamReader(own)


def test_a_batch_write_cannot_overwrite_a_topic() -> None:
    with pytest.raises(ConfigurationError, match="overwritten"):
        KafkaEosDataSource(OPTIONS).writer(source_schema(include_headers=False), overwrite=True)


def test_nothing_heavy_is_imported_when_spark_looks_for_data_sources() -> None:
    heavy = ("confluent_kafka", "kafka", "numpy", "pyarrow", "pandas", "spark_kafka_eos.options")
    script = (
        "import sys, pyspark.sql.datasource; before = set(sys.modules)\n"
        "import pyspark_kafka_eos\n"
        f"print(*[name for name in {heavy!r} if name in sys.modules and name not in before])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
