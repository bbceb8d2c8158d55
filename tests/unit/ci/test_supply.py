"""What is installed and shipped: pinned requirements, the wheel's files, and an audit that never passes unasked."""

import datetime as dt
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import metadata, packages_distributions

import pytest
from packaging.requirements import Requirement

from spark_kafka_eos.tools.cli.main import COMMANDS
from tests.unit.ci.test_verdict import ROOT, script

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements-dev.txt").read_text()
IMAGE_LOCK = (ROOT / "conf" / "kubernetes" / "requirements.txt").read_text()
EXTRAS = PROJECT["optional-dependencies"]


def pinned(lock: str) -> list[Requirement]:
    return [Requirement(line.rstrip(" \\")) for line in lock.splitlines() if line[:1].isalnum()]


def name_of(requirement: str) -> str:
    return Requirement(requirement).name


PINNED = pinned(LOCK)


def named(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def wanted(requirements: list[str]) -> list[Requirement]:
    """Requirements with those of the package's own extras in place of their names."""
    found = []
    for each in map(Requirement, requirements):
        if each.name == PROJECT["name"]:
            found += [inner for extra in sorted(each.extras) for inner in wanted(EXTRAS[extra])]
        else:
            found.append(each)
    return found


def test_each_requirement_is_pinned_to_a_version_that_it_allows():
    for requirement in wanted(PROJECT["dependencies"] + EXTRAS["dev"]):
        pins = [pin for pin in PINNED if named(pin.name) == named(requirement.name)]
        assert pins, f"{requirement} is not pinned; run: make lock"
        for pin in pins:
            [version] = pin.specifier
            assert version.operator == "=="
            assert requirement.specifier.contains(version.version), f"{pin} is not {requirement}; run: make lock"


@pytest.mark.parametrize("lock", [LOCK, IMAGE_LOCK], ids=["development", "image"])
def test_each_pinned_version_has_its_hashes_and_no_line_names_a_place(lock):
    assert len(re.findall(r"==.* \\\n    --hash=sha256:[0-9a-f]{64}", lock)) == len(pinned(lock)) > 10
    assert "://" not in lock


def test_the_image_gets_every_dependency_in_a_version_that_was_tested():
    image = pinned(IMAGE_LOCK)
    assert {named(each) for each in map(name_of, PROJECT["dependencies"])} <= {named(pin.name) for pin in image}
    tested = {(named(pin.name), str(pin.specifier)) for pin in PINNED}
    assert [str(pin) for pin in image if (named(pin.name), str(pin.specifier)) not in tested] == []


def test_the_page_on_deploying_has_every_extra_with_what_it_adds():
    table = (ROOT / "docs/deploying.md").read_text().partition("### Extras")[2].partition("\n### ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE))
    assert rows.keys() == EXTRAS.keys() - {"test", "docs", "dev"}
    for extra, adds in rows.items():
        for each in wanted(EXTRAS[extra]):
            assert named(each.name) in named(adds) or each.name == "spark-kafka-eos", extra


def test_a_commands_extra_installs_the_packages_that_the_command_needs():
    of_package = packages_distributions()
    for name, command in COMMANDS.items():
        if command.extra is not None:
            installed = {named(each.name) for each in wanted(EXTRAS[command.extra.name])}
            assert {named(of_package[package][0]) for package in command.extra.packages} <= installed, name


EXPLAINED = {"spark_kafka_eos/tools/cli/runbook.md"}  # of docs/, for `kafka-eos explain`
AT_EACH_START = {"spark_kafka_eos.pth"}  # in site-packages itself, where Python looks for such files


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(tmp_path):
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=60)
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl"), "pure Python"
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "spark_kafka_eos", "pyspark_kafka_eos", "kafka_eos_python"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    version = wheel.name.split("-")[1]
    scripts = {f"spark_kafka_eos-{version}.data/scripts/kafka-eos-python"}
    modules = {
        name for name in tracked if (ROOT / name).is_file() and "/bin/" not in name and not name.endswith(".pth")
    }
    assert packed == modules | scripts | EXPLAINED | AT_EACH_START
    assert {"spark_kafka_eos/py.typed", "spark_kafka_eos/testing/jars.sha256"} <= packed
    first = wheel.read_bytes()
    wheel.unlink()
    subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, check=True, capture_output=True, timeout=60)
    assert wheel.read_bytes() == first, "who builds the same sources gets the same bytes"


PERMISSIVE = {"0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "PSF-2.0", "Zlib"}


def licences(name: str) -> set[str]:
    """What the package's metadata says, in the names of SPDX where it has them."""
    found = metadata(name)
    classifiers = [each for each in found.get_all("Classifier", []) if each.startswith("License :: OSI Approved :: ")]
    said = found["License-Expression"] or " AND ".join(classifiers) or found["License"] or "none"
    names = (
        re.sub(r"^License :: OSI Approved :: | (Software )?License| \(ISCL\)", "", each) for each in said.split(" AND ")
    )
    return {"Apache-2.0" if name == "Apache" else name for name in names}


def test_what_the_image_installs_has_permissive_licences():
    here = [pin for pin in pinned(IMAGE_LOCK) if pin.marker is None or pin.marker.evaluate()]
    assert len(here) > 15
    assert {pin.name: found for pin in here if not (found := licences(pin.name)) <= PERMISSIVE} == {}


GOOD = {"name": "numpy", "version": "2.4.6", "vulns": []}
UNKNOWN = {"name": "attrs", "skip_reason": "Dependency not found"}
BAD = {"name": "rich", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}


AUDIT = script("audit")
TODAY = dt.date(2026, 1, 31)
COPY = {
    "date": "2026-01-01",
    "packages": {
        "rich": [{"id": "PYSEC-1", "ranges": [["0", "1.1", None]], "versions": []}],
        "attrs": [
            {"id": "PYSEC-2", "ranges": [["2.0", None, "2.5"], ["3.0", "3.2", None]], "versions": []},
            {"id": "PYSEC-3", "ranges": [], "versions": ["7.0"]},
        ],
    },
}


@pytest.mark.parametrize(
    ("output", "pins", "code", "said"),
    [
        ([GOOD], ["numpy 2.4.6"], 0, "no known vulnerability in 1 packages"),
        ([GOOD, BAD], ["numpy 2.4.6", "rich 1.0"], 1, "rich 1.0: PYSEC-1, fixed in 1.1$"),
        (
            None,
            ["rich 1.2"],
            0,
            "no advisory service knew 1 of 1 .*no route.* copy of 2026-01-01, .* 30 days old",
        ),
        (None, ["rich 1.0"], 1, "rich 1.0: PYSEC-1, fixed in 1.1\nno advisory service"),
        ([], ["rich 1.2"], 0, "no advisory service knew 1 of 1"),
        ([UNKNOWN], ["attrs 2.6"], 0, "no advisory service knew 1 of 1 .*Dependency not found"),
        ([GOOD, UNKNOWN], ["numpy 2.4.6", "attrs 2.5"], 1, "attrs 2.5: PYSEC-2, fixed in 3.2\nno .* 1 of 2"),
        (None, ["attrs 7.0"], 1, "attrs 7.0: PYSEC-3, fixed in no release"),
        (None, [], 2, "no advisory service knew 0 of 0.*(?s:.*)NOT AUDITED"),
    ],
)
def test_an_audit_asks_a_service_and_looks_the_others_up_in_the_copy(output, pins, code, said):
    answer = "" if output is None else json.dumps({"dependencies": output})
    pairs = [tuple(pin.split()) for pin in pins]
    found, text = AUDIT.judge(answer, "Traceback\nConnectionError: no route", pairs, COPY, TODAY)
    assert found == code, text
    assert re.match(said, text), text


@pytest.mark.parametrize(("days", "code"), [(90, 0), (91, 2)])
def test_an_audit_by_an_old_copy_alone_does_not_pass(days, code):
    today = dt.date(2026, 1, 1) + dt.timedelta(days=days)
    found, text = AUDIT.judge("", "", [("rich", "1.2")], COPY, today)
    assert (found, "NOT AUDITED: the copy is older than 90 days" in text) == (code, code == 2)
    assert AUDIT.judge("", "", [("rich", "1.2")], COPY, today, oldest=1_000)[0] == 0


def test_a_copy_has_what_advisories_say_of_the_pinned_packages():
    events = [
        {"introduced": "0"},
        {"fixed": "1.1"},
        {"introduced": "2.0"},
        {"last_affected": "2.5"},
        {"introduced": "3"},
    ]
    affected = {
        "package": {"name": "Rich", "ecosystem": "PyPI"},
        "ranges": [{"type": "GIT", "events": [{"introduced": "0"}]}, {"type": "ECOSYSTEM", "events": events}],
        "versions": ["1.0"],
    }
    advisories = [
        {"id": "PYSEC-1", "affected": [affected]},
        {"id": "PYSEC-2", "affected": [affected], "withdrawn": "2026-01-01"},
        {"id": "PYSEC-3", "affected": [affected | {"package": {"name": "other", "ecosystem": "PyPI"}}]},
    ]
    made = AUDIT.stored(advisories, ["rich", "attrs"], TODAY, "a clone")
    ranges = [["0", "1.1", None], ["2.0", None, "2.5"], ["3", None, None]]
    assert made["packages"] == {"rich": [{"id": "PYSEC-1", "ranges": ranges, "versions": []}]}
    assert [*AUDIT.affecting("rich", "1.1", made)] == []
    assert len([*AUDIT.affecting("rich", "2.5", made)]) == len([*AUDIT.affecting("rich", "3.0", made)]) == 1


def test_no_pinned_version_has_an_advisory_in_the_stored_copy():
    copy = json.loads((ROOT / ".ci" / "advisories.json").read_text())
    pins = AUDIT.pinned([ROOT / "requirements-dev.txt", ROOT / "conf" / "kubernetes" / "requirements.txt"])
    assert len(pins) > 100 and len(copy["packages"]) > 20
    assert [(name, known) for name, version in pins for known in AUDIT.affecting(name, version, copy)] == []
