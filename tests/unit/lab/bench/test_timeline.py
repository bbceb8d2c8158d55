"""The timeline of a micro-batch: from samples of CPU clocks and Spark's progress to busy cores by role."""

from dataclasses import replace

import pytest
from rich.console import Console

from lab.bench.timeline import (
    Watched,
    busy,
    draw,
    idle_steps,
    middle,
    phases_of,
    role_of,
    started_at,
    steps_of,
    timeline,
)
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol.trace import Phase, Trace


def batch(milliseconds, **phases):
    return {
        "batchId": 7,
        "timestamp": "1970-01-01T00:00:10.000Z",
        "durationMs": {"triggerExecution": milliseconds, **phases},
    }


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


def trace(began_ms, **phases):
    """With phases of these lengths, one after the other from 5 ms on."""
    start, made = 5.0, []
    for name, took in phases.items():
        made.append(Phase(name=name, start=start, milliseconds=took))
        start += took
    return Trace(began_ms=began_ms, milliseconds=start, phases=tuple(made))


def test_steps_leave_no_gap_and_the_traces_phases_divide_add_batch():
    found = steps_of(
        batch(100, latestOffset=2, walCommit=18, addBatch=60, commitOffsets=15),
        trace(10_022.0, begin=1, job=30, append=10, end=2),
    )
    assert {name: (round(1e3 * at), round(1e3 * end)) for name, (at, end) in found.items() if end > at} == {
        "latestOffset": (0, 2),
        "walCommit": (2, 20),
        "addBatch: before job": (20, 28),
        "addBatch: job": (28, 58),
        "addBatch: append": (58, 68),
        "addBatch: end": (68, 70),
        "addBatch: rest": (70, 85),
        "commitOffsets": (85, 100),
    }


def test_without_a_trace_add_batch_is_one_step():
    found = steps_of(batch(100, walCommit=20, addBatch=60, commitOffsets=15), None)
    assert found["addBatch"] == pytest.approx((0.02, 0.085))


def test_a_clock_that_is_ahead_makes_no_step_longer_than_the_trigger():
    found = steps_of(batch(100, addBatch=60, commitOffsets=15), trace(10_200.0, job=30))
    assert [end for _, end in found.values()] == sorted(end for _, end in found.values())
    assert max(end for _, end in found.values()) == 0.1


def test_idle_time_of_a_step_is_the_mean_of_all_micro_batches():
    one = batch(100, walCommit=20, addBatch=80)
    other = one | {"timestamp": "1970-01-01T00:00:11.000Z"}
    idle = [(10.0, 0.0), (10.02, 0.04), (11.0, 0.04), (11.02, 0.06), (11.1, 0.14)]
    steps = {step.name: step for step in idle_steps([one, other], {}, idle)}
    assert steps["walCommit"].seconds == pytest.approx(0.02)
    assert steps["walCommit"].idle == pytest.approx((0.04 + 0.02) / 2)
    assert steps["addBatch"].idle == pytest.approx((0.0 + 0.08) / 2)
    shown = replace(timeline("t", one, []), steps=tuple(steps.values()), batches=2)
    assert [each["name"] for each in shown.to_json()["steps"]] == list(steps)
    console = Console(width=80)
    with console.capture() as captured:
        console.print(shown.table())
    assert captured.get().splitlines()[-1].split() == ["trigger", "100.0", "70.0", "100%"]
