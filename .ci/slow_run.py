"""The slow tests in parts that fit an hour each, and the record of each part's last run in which every test passed.

`make test-slow` runs the parts that have no record since the code last changed, so a run that was stopped goes on where
it was. It writes the record, to be committed; `.ci/run` prints it.

The parts in LONG take most of an hour each, and run only if they are named; their record is kept in the same way.

Usage: slow_run.py run [--kafka-version VERSION] [PART …] | slow_run.py print
"""

import argparse
import datetime as dt
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("slow-run.txt")
SEEDS = "tests/simulation/test_seeds.py"
HISTORIES = f"{SEEDS}::test_a_million_histories_are_correct"
LATE = f"{SEEDS}::test_drivers_that_come_back_late_harm_nobody_in_many_histories"
BETWEEN_CLUSTERS = "tests/faults/test_matrix_between_clusters.py"
SOAK = "tests/spark/test_soak.py"
HOURS = f"{SOAK}::test_hours_of_faults_leave_what_each_way_writes_exactly_once"
IN_REAL_TIME = f"{SEEDS}::test_queries_in_real_time_lose_and_repeat_nothing_in_many_histories"
FAULTS = "tests/spec/test_real_faults.py::test_ten_thousand_real_faults_leave_only_what_the_specification_allows"
MUTATED = "tests/mutated/test_rooms.py::test_a_test_notices_each_mutant_of_the_room_or_it_is_judged"
ROOMS = (
    "login", "options", "connection", "staging", "fence", "recovery", "ledger", "replay", "avro", "json", "protobuf",
    "registry",
)  # fmt: skip
TOPICS = (
    "tests/broker/test_fuzzed_topics.py"
    "::test_thousands_of_topics_with_random_contents_are_read_as_librdkafka_reads_them"
)
DIFFERENTIAL_AVRO = (
    "tests/unit/registry/test_avro_against_java.py"
    "::test_a_changed_schema_is_read_as_avros_java_reads_it_or_the_page_says_why_not"
)
DIFFERENTIAL_PROTOBUF = (
    "tests/unit/registry/test_protobuf_against_java.py"
    "::test_a_changed_file_is_read_and_written_as_protobufs_java_does_or_the_page_says_why_not"
)
SOAKED = ("own-0", "own-1", "own-2", "driver-0", "executors-0", "arrow-0")  # ways to write
# What pytest gets for each part, besides `-m slow`.
PARTS = {
    "specification": ["tests/spec/test_larger.py", "tests/spec/test_weakened.py", "tests/spec/test_real_time.py"],
    "traces": ["tests/spec/test_many_traces.py"],
    "real-traces": ["tests/spec/test_many_real_traces.py"],
    **{f"histories-{part}": [f"{HISTORIES}[{part}]"] for part in range(10)},
    **{f"late-drivers-{brokers}": [f"{LATE}[{brokers}]"] for brokers in ("verified", "not-verified")},
    **{f"histories-real-time-{part}": [f"{IN_REAL_TIME}[{part}]"] for part in range(5)},
    "left-out-markers": [f"{SEEDS}::test_markers_that_are_left_out_lose_and_repeat_nothing_in_many_histories"],
    "all-interleavings": ["tests/simulation/test_exhaustive.py", "-k", "larger_bounds"],
    "all-interleavings-guards": ["tests/simulation/test_exhaustive.py", "-k", "guard"],
    "send-plan": ["tests/unit/appending/test_send_plan_exhausted.py"],
    "requirements": ["tests/requirements"],
    "guards": ["tests/mutated/test_guards.py"],
    **{f"mutants-{room}": [f"{MUTATED}[{room}]"] for room in ROOMS},
    "fault-matrix": ["tests/faults/test_matrix.py"],
    "fault-matrix-real-time": ["tests/faults/test_matrix_real_time.py"],
    **{f"fault-matrix-between-clusters-{tv}": [BETWEEN_CLUSTERS, "-k", tv] for tv in ("TV1", "TV2")},
    "three-brokers": [
        "tests/broker/test_embedded.py",
        "tests/faults/test_three_brokers.py",
        "tests/faults/test_two_clusters.py",
    ],
    "ledger": [
        "tests/broker/test_hanging_transactions.py",
        "tests/broker/test_moved_ledger.py",
        "tests/broker/test_outdated_coordinator.py",
        "tests/broker/test_relative_offsets.py",
        "tests/spark/test_kafka_is_the_checkpoint.py",
        "tests/spark/test_reserved_topics.py",
        "tests/spark/test_restored_checkpoint.py",
        "tests/spark/test_two_clusters.py",
    ],
    "lost-checkpoints": ["tests/spark/test_lost_checkpoints_proof.py"],
    "tables": [
        "tests/broker/test_table.py",
        "tests/broker/test_table_operators.py",
        "tests/spark/test_demo.py",
        "tests/spark/test_table.py",
    ],
    "table-kills": ["tests/broker/test_table_kills.py"],
    "delta": ["tests/spark/test_delta.py"],
    "iceberg": ["tests/spark/test_iceberg.py", "tests/spark/test_iceberg_rest.py"],
    "table-streams": ["tests/spark/test_table_streams.py"],
    "kills": [
        "tests/spark/test_barrier.py",
        "tests/spark/test_crashes.py",
        "tests/spark/test_fenced_drivers.py",
        "tests/spark/test_notebook.py",
        "tests/spark/test_pipelines.py",
        "tests/spark/test_releases.py",
        "tests/spark/test_source_commits.py",
        "tests/spark/test_stopping.py",
        "tests/spark/test_witnesses.py",
        "tests/spark/test_write_paths.py",
        "tests/spark/test_writer.py",
    ],
    "real-time": ["tests/broker/test_real_time_kills.py", "tests/spark/test_real_time.py"],
    "state": ["tests/spark/test_state.py"],
    "dead-letters": ["tests/spark/test_dead_letters_proof.py"],
    "soak": [f"{SOAK}::test_five_minutes_of_faults_leave_all_outputs_exactly_once"],
    "soak-real-time": ["tests/spark/test_soak_real_time.py"],
    "soak-table": ["tests/spark/test_soak_table.py"],
    "weeks": ["tests/broker/test_weeks.py", "tests/spark/test_weeks.py"],
    "other-releases": [
        "tests/broker/test_message_formats.py",
        "tests/broker/test_old_clients.py",
        "tests/broker/test_releases.py",
        "tests/broker/test_rollback.py",
        "tests/broker/test_tansu.py",
        "tests/spark/test_before_kafka_3.py",
        "tests/spark/test_checkpoint_formats.py",
        "tests/spark/test_kfake.py",
        "tests/spark/test_migrating_checkpoint.py",
        "tests/spark/test_rollback.py",
    ],
    # Also those that run each time, so that its table has every case.
    "peer": ["tests/spark/test_peer.py", "-m", "slow or not slow"],
    # Apart, because both create the pages' topics.
    "page-commands": ["tests/broker/test_page_commands.py"],
    "page-programs": ["tests/spark/test_page_programs.py"],
    "site": ["tests/unit/documentation/test_site_in_a_browser.py"],
    "readers": [
        "tests/broker/test_held_back_follower.py",
        "tests/broker/test_nearest_replica.py",
        "tests/broker/test_quota.py",
        "tests/broker/test_random_workload.py",
        "tests/broker/test_readers.py",
        "tests/broker/test_rolling_restarts.py",
        "tests/broker/test_slow_links.py",
        "tests/broker/test_ten_thousand_partitions.py",
        "tests/broker/test_tiered_storage.py",
        "tests/unit/lab/test_fuzz.py",
    ],
    **{f"topics-{part}": [f"{TOPICS}[{part}]"] for part in range(4)},
    "registry": [
        "tests/unit/registry/test_apicurio.py",
        "tests/unit/registry/test_fuzzed_schemas.py",
        "tests/unit/registry/test_json_differential.py",
        "tests/unit/registry/test_json_test_suite.py",
        "tests/unit/registry/test_protobuf_samples.py",
    ],
    **{f"differential-avro-{part}": [f"{DIFFERENTIAL_AVRO}[{part}]"] for part in range(10)},
    **{f"differential-protobuf-{part}": [f"{DIFFERENTIAL_PROTOBUF}[{part}]"] for part in range(25)},
    "clusters": [
        "tests/spark/test_databricks.py",
        "tests/spark/test_doctor.py",
        "tests/spark/test_local_cluster.py",
        "tests/spark/test_other_python.py",
        "tests/spark/test_standalone_cluster.py",
        "tests/spark/test_tokens.py",
        "tests/unit/test_deployment_files.py",
    ],
    "connect": [
        "tests/spark/test_connect.py",
        "tests/spark/test_connect_kills.py",
        "tests/spark/test_connect_limits.py",
    ],
    "object-stores": ["tests/spark/test_object_stores.py"],
    "yarn": ["tests/spark/test_yarn.py"],
    "kubernetes": ["tests/spark/test_kubernetes.py"],
    "kerberos": ["tests/spark/test_kerberos.py"],
    "alerts": ["tests/unit/test_alerts.py"],
    "benchmarks": ["tests/broker/test_bench.py", "tests/spark/test_bench.py", "tests/spark/test_quickack.py"],
}
LONG = {
    **{f"real-faults-{part}": [f"{FAULTS}[{tv}-{part}]" for tv in ("TV2", "TV1")] for part in range(10)},
    **{f"soak-{piece}": [f"{HOURS}[{piece}]"] for piece in SOAKED},
}
ALL = PARTS | LONG
# What may change without the slow tests having to run again.
NOT_TESTED = (":!*.md", ":!docs", ":!.ci")


@dataclass(frozen=True, slots=True)
class Passed:
    """A part's last run: each of `cases` tests passed, in `seconds`, on `machine`, at `commit`."""

    part: str
    date: str
    commit: str
    cases: int
    seconds: int
    machine: str

    @classmethod
    def read(cls, line: str) -> "Passed":
        part, date, commit, cases, seconds, machine = line.split("\t")
        return cls(part, date, commit, int(cases), int(seconds), machine)

    def __str__(self) -> str:
        return "\t".join(map(str, astuple(self)))


def passed(part: str, report: Path, repository: Path) -> Passed:
    """What to record of a run. One in which not every test passed, or of changed files, exits with the reason."""
    cases = list(ET.parse(report).iter("testcase"))
    if any(case.find(result) is not None for case in cases for result in ("skipped", "failure", "error")):
        sys.exit(f"{part}: not every slow test passed, so no record of this run")
    if not cases:
        sys.exit(f"{part}: no slow test ran, so no record of this run")
    changed = _git(repository, "status", "--porcelain", "--untracked-files=no", "--", ":!*slow-run.txt")
    if changed:
        sys.exit(f"{part}: the tests ran on uncommitted changes, so no record of this run:\n{changed}")
    seconds = round(sum(float(suite.get("time", 0)) for suite in ET.parse(report).iter("testsuite")))
    date = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    return Passed(part, date, _git(repository, "rev-parse", "HEAD"), len(cases), seconds, _machine())


def write(found: Passed, record: Path) -> None:
    """Put the run in the record, instead of the part's last one."""
    runs = {each.part: each for each in (*read(record), found)}
    record.write_text("".join(f"{runs[part]}\n" for part in sorted(runs)))


def read(record: Path) -> list[Passed]:
    return [Passed.read(line) for line in record.read_text().splitlines()] if record.is_file() else []


def is_current(run: Passed, repository: Path) -> bool:
    """Whether no code has changed since the run. A commit that this clone does not have is not current."""
    differs = ["git", "-C", repository, "diff", "--quiet", run.commit, "HEAD", "--", ".", *NOT_TESTED]
    return subprocess.run(differs, check=False, capture_output=True).returncode == 0


def table(runs: Iterable[Passed], parts: Iterable[str], repository: Path) -> Table:
    """The record of every part, those without one too."""
    shown = Table("part", "tests passed", "minutes", "on", "at", "commits ago", title="Slow tests (make test-slow)")
    by_part = {run.part: run for run in runs}
    for part in parts:
        run = by_part.get(part)
        if run is None:
            shown.add_row(part, "never run to the end", "", "", "", "")
        else:
            since = _since(repository, run.commit)
            shown.add_row(part, str(run.cases), f"{run.seconds / 60:.0f}", run.date, run.commit[:12], since)
    return shown


def run(parts: Sequence[str], kafka_version: str | None) -> list[str]:
    """Run the parts, one after the other; which of them failed. A run with another broker is not recorded."""
    failed = []
    for part in parts:
        report = ROOT / "build" / f"slow-{part}.xml"
        on = ["--kafka-version", kafka_version] if kafka_version else []
        command = [sys.executable, "-m", "pytest", "-m", "slow", f"--junitxml={report}", *on, *ALL[part]]
        print(f"== {part}", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(part)
        elif not kafka_version:
            write(passed(part, report, ROOT), RECORD)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("print", help="show the record")
    running = commands.add_parser("run", help="run parts, and record those that pass")
    running.add_argument("part", nargs="*", choices=[[], *ALL], metavar="PART", help=", ".join(ALL))
    running.add_argument("--kafka-version")
    asked = parser.parse_args()
    failed: list[str] = []
    if asked.command == "run":
        done = {found.part for found in read(RECORD) if is_current(found, ROOT)}
        failed = run(asked.part or [part for part in PARTS if part not in done], asked.kafka_version)
    Console(width=None if sys.stdout.isatty() else 120).print(table(read(RECORD), ALL, ROOT))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _since(repository: Path, commit: str) -> str:
    try:
        return _git(repository, "rev-list", "--count", f"{commit}..HEAD")
    except subprocess.CalledProcessError:
        return "not in this clone"


def _machine() -> str:
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores, {gigabytes:.0f} GiB"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
