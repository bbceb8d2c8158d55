"""`bench all`: what it measures, what it puts on record, and where a run that was stopped goes on."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from lab.bench import campaign, progress
from lab.bench.figures import Comparison, Series
from lab.bench.machine import machine
from lab.commands import bench as commands

NAMES = ("a", "b", "sweep")


class Campaign:
    """A campaign of two measurements and a sweep, without broker and Spark. The one that `fails` names is broken."""

    def __init__(self, directory):
        self.directory, self.fails, self.output, self.ran = directory, "", "", []

    def measure(self, *arguments):
        """The names that `bench all` measured."""
        self.ran.clear()
        done = CliRunner().invoke(commands.bench, ["all", "--output", str(self.directory), *arguments])
        self.output = done.output
        return list(self.ran)

    def measurement(self, name):
        def run(lab, spark, size):
            self.ran.append(name)
            if name == self.fails:
                raise RuntimeError(f"{name} is broken")
            series = (Series(name="kafka-eos", records=1, seconds=(1.0,)),)
            yield name, Comparison(title=name, series=series, settings={"runs": size.runs})

        return run


@pytest.fixture
def three(tmp_path, monkeypatch):
    three = Campaign(tmp_path)
    monkeypatch.setattr(campaign, "measurements", lambda: {name: three.measurement(name) for name in NAMES})
    monkeypatch.setattr(campaign, "SWEEPS", NAMES[2:])
    monkeypatch.setattr(commands, "_on_broker_and_spark", lambda run: run(None, None))
    return three


def test_each_run_of_a_whole_campaign_measures_all_again(three):
    assert three.measure() == ["a", "b"]
    assert three.measure("--sweeps") == ["a", "b", "sweep"]


def test_what_is_left_when_the_time_is_over_is_measured_by_the_next_run(three):
    assert three.measure("--minutes", "0") == ["a"]
    assert "1 of 2 are left: run the same command again" in three.output
    three.fails = "b"
    assert three.measure("--sweeps") == ["b", "sweep"]
    assert "1 of 3 were measured before" in three.output
    three.fails = ""
    assert three.measure("--sweeps") == ["b"]
    assert three.measure("--sweeps") == ["a", "b", "sweep"]


def test_measurements_that_are_named_run_although_they_are_finished(three):
    three.fails = "b"
    three.measure()
    three.fails = ""
    assert three.measure("--only", "a") == ["a"]
    assert three.measure() == ["b"]


@pytest.mark.parametrize("changed", [{"system": "another"}, {"versions": {}}], ids=["machine", "release"])
def test_what_another_machine_or_release_measured_is_measured_again(three, tmp_path, changed):
    three.fails = "b"
    three.measure()
    file = tmp_path / progress.FILE
    stored = json.loads(file.read_text())
    file.write_text(json.dumps(stored | {"machine": stored["machine"] | changed}))
    assert three.measure() == ["a", "b"]


def test_what_was_measured_before_the_code_changed_is_measured_again(tmp_path):
    here = machine()
    progress.Progress(machine=here, code="before", finished={"a": 3}).write(tmp_path)
    busier = dataclasses.replace(here, load=here.load + 1)
    assert progress.Progress.of(tmp_path, busier, "before").remaining(["a", "b"]) == ["b"]
    assert progress.Progress.of(tmp_path, busier, "after").remaining(["a", "b"]) == ["a", "b"]


def test_the_digest_of_the_code_follows_each_file(tmp_path):
    module = tmp_path / "lab" / "bench" / "a.py"
    module.parent.mkdir(parents=True)
    module.write_text("1")
    first = progress.code_digest(tmp_path)
    module.write_text("2")
    second = progress.code_digest(tmp_path)
    module.rename(module.with_name("b.py"))
    assert len({first, second, progress.code_digest(tmp_path)}) == 3
