"""A module of an earlier release is not found, and the message says where it is now."""

from __future__ import annotations

import importlib

import pytest

from spark_kafka_eos.moved import _PLACES


@pytest.mark.parametrize("module", sorted(_PLACES))
def test_an_import_by_an_earlier_path_says_where_the_module_is(module):
    with pytest.raises(ModuleNotFoundError) as failure:
        importlib.import_module(f"spark_kafka_eos.{module}")
    first, *others = _PLACES[module].replace(" and ", ", ").split(", ")
    assert f"spark_kafka_eos.{module} has moved to spark_kafka_eos.{first}" in str(failure.value)
    for place in (first, *others):
        importlib.import_module(f"spark_kafka_eos.{place}")


def test_a_module_that_never_was_there_is_not_found_as_ever():
    with pytest.raises(ModuleNotFoundError, match="^No module named 'spark_kafka_eos.nothing'$"):
        importlib.import_module("spark_kafka_eos.nothing")
