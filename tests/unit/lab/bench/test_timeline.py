"""The timeline of a micro-batch: from samples of CPU clocks and Spark's progress to busy cores by role."""

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.lab.bench.timeline import Watched, busy, draw, middle, phases_of, role_of, started_at, timeline


def batch(milliseconds, **phases):
    return {"timestamp": "1970-01-01T00:00:10.000Z", "durationMs": {"triggerExecution": milliseconds, **phases}}


def test_the_cpu_time_between_two_samples_is_spread_evenly():
    assert busy([(10.0, 1.0), (10.1, 1.05), (10.2, 1.25)], 10.0, 0.2, 0.1) == pytest.approx((0.5, 2.0))
    assert busy([(10.05, 1.0), (10.15, 1.1)], 10.0, 0.2, 0.1) == pytest.approx((0.5, 0.5))


def test_a_process_that_started_or_ended_in_between_used_nothing_outside():
    assert busy([(10.15, 0.0), (10.2, 0.05)], 10.0, 0.4, 0.1) == pytest.approx((0.0, 0.5, 0.0, 0.0))


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("java -cp x org.apache.spark.deploy.SparkSubmit pyspark-shell", "JVM"),
        ("python -m pyspark.daemon pyspark.worker", "Python, tasks"),
        ("python -m pyspark.sql.streaming.python_streaming_source_runner", "Python, source"),
        ("python -c from multiprocessing.spawn import spawn_main", "Python, driver"),
        ("setfacl x", "others"),
    ],
)
def test_a_process_is_known_by_its_command_line(command, role):
    assert role_of(command.split()) == role


def test_phases_follow_each_other_as_spark_goes_through_them():
    found = phases_of(batch(100, addBatch=60, latestOffset=10, commitOffsets=20))
    assert found["latestOffset"] == (0.0, 0.01)
    assert found["addBatch"] == pytest.approx((0.01, 0.07))
    assert found["commitOffsets"] == pytest.approx((0.07, 0.09))


def test_the_batch_that_is_shown_is_neither_one_of_the_first_nor_the_last():
    progress = [batch(ms) for ms in (900, 800, 700, 120, 100, 140, 30)]
    assert middle(progress)["durationMs"]["triggerExecution"] == 120
    with pytest.raises(ToolFailed, match="only 4 micro-batches"):
        middle(progress[:4])


def test_processes_of_one_role_are_added_and_those_that_did_nothing_left_out(tmp_path):
    idle, one, two = ([(9.0, 1.0), (11.0, 1.0 + used)] for used in (0.0, 1.0, 0.5))
    watched = [Watched("Python, tasks", one), Watched("Python, tasks", two), Watched("broker", idle)]
    shown = timeline("t", batch(100, addBatch=90), watched)
    assert started_at(batch(1)) == 10.0
    assert list(shown.busy) == ["Python, tasks"]
    assert shown.cpu["Python, tasks"] == pytest.approx(0.075)
    assert list(shown.lines())[-1] == "CPU, ms: Python, tasks 75"
    draw(shown, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
