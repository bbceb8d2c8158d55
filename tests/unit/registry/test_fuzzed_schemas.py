"""Any bytes under any writer's schema, read with any reader's, are rows or faults of their rows: nothing is raised."""

from __future__ import annotations

import random
import time
from collections import Counter

import pyarrow as pa
import pytest

from spark_kafka_eos.registry.avro_reading import Incompatible
from spark_kafka_eos.registry.decoding import _passes
from spark_kafka_eos.registry.formats import QuerySchema, format_of
from spark_kafka_eos.registry.framing import framed
from spark_kafka_eos.registry.nesting import UnsupportedSchema
from tests.unit.registry.fuzzed_schemas import bodies, changed, schema

_HEADER = b"\0\0\0\0\1"
_VALUES = 100  # of each schema
_SECONDS = 2.0  # of CPU that the values of a schema may take


def fuzz(seeds: range) -> Counter[str]:
    """How many values were read, and how many were faults, by cause; and how many pairs of schemas do not fit."""
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        chance = random.Random(seed)
        written = schema(chance, ("AVRO", "JSON", "PROTOBUF")[seed % 3])
        wanted = written if seed % 2 else changed(chance, written)
        try:
            target = format_of(QuerySchema(wanted))
            read = target.reader(written)
        except (UnsupportedSchema, Incompatible):  # a fault of each row, or of the query
            outcomes["schemas that do not fit"] += 1
            continue
        values = pa.array([_HEADER + body for body in bodies(chance, written, _VALUES)], pa.binary())
        ((group,), unframed) = framed(values, None)
        started = time.process_time()
        parts = list(_passes(values, group, read, target.arrow))
        spent = time.process_time() - started
        assert spent < _SECONDS, f"seed {seed}: {spent:.1f} s for {written.text}"
        rows = [int(row) for places, _, _ in parts for row in places]
        faults = {row: fault.cause for _, _, wrong in parts for row, fault in wrong.items()}
        assert sorted({*rows, *faults}) == list(range(_VALUES)), f"seed {seed}"
        assert unframed == {}
        assert all(part.type == target.arrow and len(part) == len(places) for places, part, _ in parts), f"seed {seed}"
        for _, part, _ in parts:
            part.validate(full=True)
        outcomes += Counter(faults.values())
        outcomes["read"] += _VALUES - len(faults)
    return outcomes


@pytest.mark.parametrize(
    "seeds",
    [
        range(750),
        *(
            pytest.param(
                range(750 + 10_000 * part, 10_750 + 10_000 * part),
                marks=[pytest.mark.slow, pytest.mark.timeout(3_600)],
            )
            for part in range(10)
        ),
    ],
    ids=lambda seeds: f"{len(seeds)} from {seeds.start}",
)
def test_a_hundred_values_of_each_of_many_schemas_stop_nothing(seeds, cell):
    outcomes = fuzz(seeds)
    for outcome, count in outcomes.items():
        cell("Values of a registry, fuzzed", f"{len(seeds):,} schemas", outcome, f"{count:,}")
    assert outcomes["read"] > 20 * len(seeds)
    assert outcomes["undecodable"] > 10 * len(seeds)
