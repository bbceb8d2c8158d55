"""Known vulnerabilities of pinned requirements: by pip-audit, and where no service answers, by a copy of advisories.

The copy, `advisories.json`, has what the Python Packaging Advisory Database (pypa/advisory-database, CC BY 4.0) knew of
the pinned packages at its date. It knows nothing newer, so an audit by it alone passes for `OLDEST` days after it.

Exit code 0: none; 1: some; 2: some were not looked up, or only in a copy that is too old.

Usage: audit.py look requirements-dev.txt [--oldest DAYS]      look for vulnerabilities
       audit.py store CLONE requirements-dev.txt               renew the copy from a clone of the database
"""

import argparse
import datetime as dt
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

COPY = Path(__file__).with_name("advisories.json")
OLDEST = 90  # days
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)

Advisories = Mapping[str, Any]


def judge(
    output: str, errors: str, pins: Sequence[tuple[str, str]], copy: Advisories, today: dt.date, oldest: int = OLDEST
) -> tuple[int, str]:
    """The exit code and what to say, from what pip-audit wrote in its JSON format and to standard error, and for what
    it did not look up, from the copy.
    """
    try:
        packages = json.loads(output)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        packages = []
    # pip-audit passes what its service does not know, or does not answer for.
    asked = {(named(each["name"]), each["version"]) for each in packages if "vulns" in each}
    found = [
        f"{each['name']} {each['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no release'}"
        for each in packages
        for known in each.get("vulns", ())
    ]
    others = [pin for pin in pins if pin not in asked]
    found += [f"{name} {version}: {known}" for name, version in others for known in affecting(name, version, copy)]
    code = 1 if found else 0
    if others or not pins:
        skipped = [each["skip_reason"] for each in packages if "skip_reason" in each]
        reason = (skipped or errors.strip().splitlines()[-1:] or ["pip-audit wrote nothing"])[0]
        date = dt.date.fromisoformat(copy["date"])
        age = (today - date).days
        found.append(
            f"no advisory service knew {len(others)} of {len(pins)} packages ({reason}); they were looked up in a copy "
            f"of {date}, which is {age} days old and knows nothing newer"
        )
        if age > oldest or not pins:
            found.append(f"NOT AUDITED: the copy is older than {oldest} days. Renew it, or ask again with a service.")
            code = 2
    return code, "\n".join(found) or f"no known vulnerability in {len(pins)} packages"


def affecting(name: str, version: str, copy: Advisories) -> Iterator[str]:
    """The copy's advisories that name this version."""
    at = Version(version)
    for each in copy["packages"].get(named(name), ()):
        fixed = [end for _, end, _ in each["ranges"] if end]
        if version in each["versions"] or any(_within(at, *bounds) for bounds in each["ranges"]):
            yield f"{each['id']}, fixed in {', '.join(fixed) or 'no release'}"


def _within(at: Version, introduced: str, fixed: str | None, last: str | None) -> bool:
    begins = introduced == "0" or at >= Version(introduced)
    return begins and (fixed is None or at < Version(fixed)) and (last is None or at <= Version(last))


def stored(advisories: Iterable[Mapping[str, Any]], names: Iterable[str], date: dt.date, source: str) -> Advisories:
    """The copy of what these advisories, in OSV's form, say of the packages with these names."""
    wanted = {named(name) for name in names}
    packages: dict[str, list[dict[str, Any]]] = {name: [] for name in sorted(wanted)}
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", ()):
            name = named(affected["package"]["name"])
            if name in wanted and affected["package"].get("ecosystem") == "PyPI":
                ranges = [*_ranges(affected)]
                versions = [] if ranges else affected.get("versions", [])
                packages[name].append({"id": advisory["id"], "ranges": ranges, "versions": versions})
    known = {name: sorted(found, key=lambda each: str(each["id"])) for name, found in packages.items() if found}
    return {"date": date.isoformat(), "source": source, "licence": "CC BY 4.0", "packages": known}


def _ranges(affected: Mapping[str, Any]) -> Iterator[list[str | None]]:
    """Each range as its first version, the version that mended it, and the last one that was affected."""
    for each in affected.get("ranges", ()):
        if each["type"] != "ECOSYSTEM":
            continue
        introduced: str | None = None
        for event in each["events"]:
            if "introduced" in event:
                if introduced is not None:
                    yield [introduced, None, None]
                introduced = event["introduced"]
            elif introduced is not None and ("fixed" in event or "last_affected" in event):
                yield [introduced, event.get("fixed"), event.get("last_affected")]
                introduced = None
        if introduced is not None:
            yield [introduced, None, None]


def pinned(requirements: Iterable[Path]) -> list[tuple[str, str]]:
    """Name and version of each pin."""
    return [(named(name), version) for path in requirements for name, version in _PIN.findall(path.read_text())]


def named(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _of(clone: Path) -> Iterator[Mapping[str, Any]]:
    """The advisories of a clone, also one without files."""
    import yaml

    git = ["git", "-C", clone]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", "HEAD", "vulns"], check=True, capture_output=True, text=True)
    files = [line.split("\t") for line in listed.stdout.split("\0") if line.endswith((".yaml", ".yml", ".json"))]
    blobs = "".join(f"{head.split()[2]}\n" for head, _ in files)
    read = subprocess.run([*git, "cat-file", "--batch"], input=blobs.encode(), check=True, capture_output=True).stdout
    at = 0
    for _ in files:
        end = read.index(b"\n", at)
        size = int(read[at:end].split()[2])
        yield yaml.safe_load(read[end + 1 : end + 1 + size])
        at = end + size + 2


def _store(clone: Path, requirements: Sequence[Path]) -> None:
    said = subprocess.run(
        ["git", "-C", clone, "log", "-1", "--format=%H %cs"], check=True, capture_output=True, text=True
    ).stdout.split()
    names = [name for name, _ in pinned(requirements)]
    copy = stored(_of(clone), names, dt.date.fromisoformat(said[1]), f"pypa/advisory-database at {said[0]}")
    COPY.write_text(json.dumps(copy, indent=1, default=str) + "\n")
    print(f"{sum(map(len, copy['packages'].values()))} advisories of {len(copy['packages'])} packages, of {said[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    looking, storing = commands.add_parser("look"), commands.add_parser("store")
    looking.add_argument("--oldest", type=int, default=OLDEST, metavar="DAYS")
    storing.add_argument("clone", type=Path)
    for each in (looking, storing):
        each.add_argument("requirements", type=Path, nargs="+")
    asked = parser.parse_args()
    if asked.command == "store":
        _store(asked.clone, asked.requirements)
        return
    options = ["--format", "json", "--disable-pip", "--require-hashes", "--timeout", "30"]
    files = [word for path in asked.requirements for word in ("-r", str(path))]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *options, *files], check=False, capture_output=True, text=True
    )
    pins = pinned(asked.requirements)
    copy = json.loads(COPY.read_text())
    code, text = judge(done.stdout, done.stderr, pins, copy, dt.datetime.now(dt.UTC).date(), asked.oldest)
    print(text)
    sys.exit(code)


if __name__ == "__main__":
    try:
        main()
    except InvalidVersion as error:
        sys.exit(f"a version cannot be compared: {error}")
