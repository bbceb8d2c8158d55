"""The public API: what a user may import, and that it costs no PySpark."""

import subprocess
import sys

import pytest

import spark_kafka_eos
from spark_kafka_eos import errors

PUBLIC = set(spark_kafka_eos.__all__)  # exactly those of docs/api.md: documentation/test_reference_pages.py


def test_every_public_name_can_be_imported():
    for name in PUBLIC:
        assert getattr(spark_kafka_eos, name) is not None


def test_names_of_earlier_releases_are_the_same_things():
    earlier = {"Held": "TableVersion", "aside": "to_dead_letters", "follow": "print_progress", "split": "split_errors"}
    for before, now in earlier.items():
        assert getattr(spark_kafka_eos, before) is getattr(spark_kafka_eos, now)


def test_every_error_a_job_can_meet_is_public():
    tree = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert tree - set(PUBLIC) == {"ToolFailed"}  # of the command line only


def test_a_name_that_does_not_exist_is_reported_as_by_python():
    with pytest.raises(AttributeError, match="module 'spark_kafka_eos' has no attribute 'Nothing'"):
        spark_kafka_eos.Nothing  # noqa: B018


def test_importing_the_package_and_its_lower_layers_loads_no_pyspark():
    code = """
import sys, spark_kafka_eos, spark_kafka_eos.micro_batch, spark_kafka_eos.failpoints
print(sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "kafka")))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
