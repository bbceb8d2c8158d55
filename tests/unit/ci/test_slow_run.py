"""The record of the slow tests: what is written, when it is not, and that every slow test has a part to run in."""

import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from tests.unit.ci.test_verdict import ROOT, report, script

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
slow_run = script("slow_run")
RUN = slow_run.Passed("weeks", "2026-01-01", "0" * 40, 2, 600, "2 cores, 24 GiB")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q")
    commit(folder, "file", "1")
    return folder


def git(repository: Path, *arguments: str) -> None:
    subprocess.run([*GIT, "-C", repository, *arguments], check=True)


def commit(repository: Path, name: str, text: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text(text)
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", name)


def passed(repository: Path, cases: dict[str, str]):
    return slow_run.passed("weeks", report(repository.parent, cases), repository)


def printed(runs, repository: Path) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(slow_run.table(runs, ["weeks", "soak"], repository))
    return capture.get()


def test_the_record_names_date_commit_cases_minutes_and_machine(repository):
    run = passed(repository, {"a.b": "", "a.c": ""})
    assert (run.part, run.cases) == ("weeks", 2)
    assert re.fullmatch(r"\d+ cores, \d+ GiB", run.machine)
    shown = printed([run], repository)
    assert re.search(rf"weeks +│ 2 +│ 0 +│ {run.date} │ {run.commit[:12]} │ 0 ", shown)
    assert re.search("soak +│ never run to the end", shown)


def test_a_record_is_current_until_code_changes(repository):
    run = passed(repository, {"a.b": ""})
    commit(repository, "docs/page.md", "2")
    assert slow_run.is_current(run, repository)
    commit(repository, "file", "2")
    assert not slow_run.is_current(run, repository)
    assert "│ 2 " in printed([run], repository)


def test_a_record_of_a_commit_that_is_not_there_says_so(repository):
    assert not slow_run.is_current(RUN, repository)
    assert "not in this clone" in printed([RUN], repository)


def test_each_part_has_the_record_of_its_last_run(tmp_path):
    record = tmp_path / "slow-run.txt"
    other, later = (
        slow_run.Passed(part, "2026-01-02", "1" * 40, 3, 60, "4 cores, 8 GiB") for part in ("soak", "weeks")
    )
    for run in (RUN, other, later):
        slow_run.write(run, record)
    assert slow_run.read(record) == [other, later]


@pytest.mark.parametrize("inside", ["<failure/>", "<error/>", "<skipped/>"])
def test_a_run_in_which_a_test_did_not_pass_leaves_no_record(repository, inside):
    with pytest.raises(SystemExit, match="not every slow test passed"):
        passed(repository, {"a.b": inside, "a.c": ""})


def test_a_run_on_uncommitted_changes_leaves_no_record(repository):
    (repository / "file").write_text("2")
    with pytest.raises(SystemExit, match="uncommitted changes"):
        passed(repository, {"a.b": ""})


def test_every_file_with_slow_tests_is_in_one_part():
    """Read, not collected: that would import all tests, which takes as long as many of them."""
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if "mark.slow" in path.read_text())
    slow = {str(path.relative_to(ROOT)) for path in files if path.parent != Path(__file__).parent}
    assert len(slow) > 50
    parts = {test: [part for part, paths in slow_run.ALL.items() if has(paths, test)] for test in slow}
    assert {test: found for test, found in parts.items() if len(found) != 1 and test not in IN_SEVERAL} == {}
    named = {path.partition("::")[0] for paths in slow_run.ALL.values() for path in paths if path.startswith("tests/")}
    assert named == (slow | {"tests/requirements"}) - {test for test in slow if test.startswith("tests/requirements/")}


IN_SEVERAL = {
    "tests/broker/test_fuzzed_topics.py",
    "tests/faults/test_matrix_between_clusters.py",
    "tests/mutated/test_rooms.py",
    "tests/simulation/test_exhaustive.py",
    "tests/simulation/test_seeds.py",
    "tests/spark/test_soak.py",
    "tests/spec/test_real_faults.py",
    "tests/unit/registry/test_avro_against_java.py",
    "tests/unit/registry/test_protobuf_against_java.py",
}


def test_the_parts_of_a_file_are_all_of_it():
    in_real_time = [part for part in slow_run.PARTS if part.startswith("histories-real-time-")]
    histories = [
        paths for part, paths in slow_run.PARTS.items() if part.startswith("histories-") and part not in in_real_time
    ]
    seeds = (ROOT / "tests" / "simulation" / "test_seeds.py").read_text()
    assert f"_PARTS = 1_500, 1_000_000, {len(histories)}\n" in seeds
    assert f"_REAL_TIME_PARTS = 100_000, {len(in_real_time)}\n" in seeds
    assert histories == [[f"{slow_run.HISTORIES}[{number}]"] for number in range(len(histories))]
    for kind, test in (("avro", slow_run.DIFFERENTIAL_AVRO), ("protobuf", slow_run.DIFFERENTIAL_PROTOBUF)):
        differential = [paths for part, paths in slow_run.PARTS.items() if part.startswith(f"differential-{kind}-")]
        page = (ROOT / f"tests/unit/registry/test_{kind}_against_java.py").read_text()
        assert f"\nPARTS = {len(differential)} " in page
        assert differential == [[f"{test}[{number}]"] for number in range(len(differential))]
    brokers = ("verified", "not-verified")
    assert f'"verification", [True, False], ids=["{brokers[0]}", "{brokers[1]}"]' in seeds
    assert [slow_run.PARTS[f"late-drivers-{each}"] for each in brokers] == [
        [f"{slow_run.LATE}[{each}]"] for each in brokers
    ]
    topics = [paths for part, paths in slow_run.PARTS.items() if part.startswith("topics-")]
    assert topics == [[f"{slow_run.TOPICS}[{number}]"] for number in range(len(topics))]
    assert f"PARTS, PER_PART = {len(topics)}, 1_000\n" in (ROOT / slow_run.TOPICS.partition("::")[0]).read_text()
    assert [slow_run.PARTS[f"fault-matrix-between-clusters-{tv}"][2] for tv in ("TV1", "TV2")] == ["TV1", "TV2"]
    exhaustive = [paths for part, paths in slow_run.PARTS.items() if part.startswith("all-interleavings")]
    assert [kind for *_, kind in exhaustive] == ["larger_bounds", "guard"]
    tests = re.findall("\ndef test_([a-z_]+)", (ROOT / exhaustive[0][0]).read_text())
    assert [sum(kind in test for *_, kind in exhaustive) for test in tests] == [0, 0, 1, 1]


def test_the_long_parts_are_all_of_their_files():
    faults = (ROOT / "tests" / "spec" / "test_real_faults.py").read_text()
    assert "FAULTS, PARTS = 10_000, 10\n" in faults
    assert [slow_run.LONG[f"real-faults-{part}"] for part in range(10)] == [
        [f"{slow_run.FAULTS}[TV2-{part}]", f"{slow_run.FAULTS}[TV1-{part}]"] for part in range(10)
    ]
    soak = (ROOT / "tests" / "spark" / "test_soak.py").read_text()
    pieces = ", ".join(f'("{way}", {number})' for way, number in (name.split("-") for name in slow_run.SOAKED))
    assert f"MINUTES, RATE = 30, 5_000\nPIECES = [{pieces}]\n" in soak
    assert [paths for part, paths in slow_run.LONG.items() if part.startswith("soak-")] == [
        [f"{slow_run.HOURS}[{piece}]"] for piece in slow_run.SOAKED
    ]
    assert len(slow_run.LONG) == 16


def test_a_long_part_runs_only_if_it_is_named(monkeypatch):
    ran: list[list[str]] = []

    def run(parts, _version):
        ran.append(list(parts))
        return []

    monkeypatch.setattr(slow_run, "run", run)
    monkeypatch.setattr(slow_run, "read", lambda _record: [])
    for named in ([], ["real-faults-3"]):
        monkeypatch.setattr("sys.argv", ["slow_run.py", "run", *named])
        slow_run.main()
    assert ran == [list(slow_run.PARTS), ["real-faults-3"]]


def has(paths: list[str], file: str) -> bool:
    """Whether pytest runs tests of the file for these arguments."""
    return any(file.startswith(path.partition("::")[0]) for path in paths if path.startswith("tests/"))


def test_the_committed_record_has_parts_that_there_are():
    assert {run.part for run in slow_run.read(slow_run.RECORD)} <= slow_run.ALL.keys()
