"""Downloads jars that are not on PyPI, once, to a user cache: brokers with their dependencies.

PySpark includes Ivy, and Spark needs Java, so nothing else must be installed. Jars are downloaded to a temporary
directory, which is then moved to `<cache>/<name>/<version>`. A manifest of names and sizes reveals missing or truncated
files before use; they are downloaded again. A filled cache needs no network. repository.py determines the repository.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from rich.console import Console

from spark_kafka_eos.appending import private_folders
from spark_kafka_eos.appending.private_folders import Others, UnsafeFolder
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing.digests import PINS, Digests, differences, digests, downloaded, pinned
from spark_kafka_eos.testing.java import java
from spark_kafka_eos.testing.repository import repository

DEFAULT_VERSION = "4.4.0"  # of the brokers
MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A Maven artifact, with its dependencies or, if `alone`, without. With a `classifier`, that file of it alone,
    of this `kind`: "jar", or "tar.gz".
    """

    organisation: str
    name: str
    revision: str
    alone: bool = False
    classifier: str = ""
    kind: str = "jar"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Jars that are downloaded and stored together, in `<name>/<version>` of the cache."""

    name: str
    version: str
    modules: tuple[Module, ...]

    def __str__(self) -> str:
        return f"{self.name.capitalize()} {self.version}"


def kafka(version: str = DEFAULT_VERSION) -> Bundle:
    """A broker, without the command line tools (`org.apache.kafka.tools`)."""
    modules = (
        Module(organisation="org.apache.kafka", name="kafka_2.13", revision=version),
        # Kafka logs through slf4j 1.7 without a binding. Without one, a broker that fails to start logs nothing.
        Module(organisation="org.slf4j", name="slf4j-simple", revision="1.7.36"),
    )
    return Bundle(name="kafka", version=version, modules=modules)


Fetch = Callable[[Bundle, Path], None]


def cache_directory(environment: Mapping[str, str], home: Path) -> Path:
    """`$KAFKA_EOS_CACHE`, else `$XDG_CACHE_HOME/spark-kafka-eos`, else `~/.cache/spark-kafka-eos`."""
    if own := environment.get("KAFKA_EOS_CACHE"):
        return Path(own)
    return Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "spark-kafka-eos"


def class_path(version: str = DEFAULT_VERSION) -> str:
    """Java's class path for this version of Kafka, downloaded first if necessary. Raises ToolFailed."""
    return f"{provide(kafka(version), cache_directory(os.environ, Path.home()), fetch)}/*"


def class_archive(version: str = DEFAULT_VERSION) -> Path:
    """Where an archive of the classes that a broker of this version loads belongs (see class_archive.py)."""
    return cache_directory(os.environ, Path.home()) / "kafka" / f"{version}.jsa"


def files(bundle: Bundle) -> list[Path]:
    """The bundle's jars or archives, downloaded first if necessary. Raises ToolFailed."""
    return downloaded(provide(bundle, cache_directory(os.environ, Path.home()), fetch))


def provide(bundle: Bundle, cache: Path, fetch: Fetch, pinned_in: Path = PINS) -> Path:
    """The directory with the bundle's jars, all of them complete. `fetch(bundle, directory)` fills an empty directory.

    If several processes need the same bundle at once, one downloads it and the others wait.
    """
    place = cache / bundle.name / bundle.version
    pins = pinned(bundle.name, bundle.version, pinned_in)
    place.parent.mkdir(parents=True, exist_ok=True)
    _require_own(cache, place.parent, place)
    if is_complete(place, pins):
        return place
    with _exclusive(place.with_name(f"{bundle.version}.lock")):
        if not is_complete(place, pins):
            _replace(place, bundle, pins, fetch)
    return place


def _require_own(*folders: Path) -> None:
    """Raise ToolFailed if somebody else can have put programs there, which would run with this user's rights."""
    for folder in folders:
        try:
            private_folders.look(private_folders.followed(folder), Others.READ)
        except UnsafeFolder as error:
            raise ToolFailed(
                f"the cache {error}", action="Or set KAFKA_EOS_CACHE to a directory that only you may change."
            ) from None


def is_complete(place: Path, pins: Digests) -> bool:
    """Whether the directory holds the pinned jars, or without pins those of its manifest, and no others."""
    try:
        expected = pins or json.loads((place / MANIFEST).read_text())
        return bool(expected) and digests(place) == expected
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError):
        return False


def _replace(place: Path, bundle: Bundle, pins: Digests, fetch: Fetch) -> None:
    """Download the bundle, in the place of what is there. The caller holds the lock: what other downloads have left
    behind is of processes that were killed.
    """
    for left in place.parent.glob(f"{bundle.version}.partial-*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        dir=place.parent, prefix=f"{bundle.version}.partial-", ignore_cleanup_errors=True
    ) as name:
        filled = Path(name) / bundle.version
        filled.mkdir()
        fetch(bundle, filled)
        sums = digests(filled)
        if not sums:
            raise ToolFailed(
                f"downloading {bundle} returned no jar", action=f"Check whether the repository has {bundle.version}."
            )
        if pins and (wrong := differences(sums, pins)):
            raise ToolFailed(
                f"the repository's {bundle} is not the one that was released: {'; '.join(wrong)}",
                action="Nothing was kept. Find out who changed it: a mirror, or a proxy on the way.",
            )
        (filled / MANIFEST).write_text(json.dumps(sums, indent=1))
        if place.exists():
            place.rename(Path(name) / "damaged")
        filled.rename(place)


@contextlib.contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock file. The operating system releases it when the process ends, however it ends."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def fetch(bundle: Bundle, directory: Path) -> None:
    """Download the jars to `directory` with PySpark's Ivy; print progress to standard error. Raises ToolFailed."""
    ivy, executable = _ivy_jar(), java()
    source = repository(os.environ, Path.home())
    with tempfile.TemporaryDirectory(prefix="kafka-eos-ivy-") as name:
        work = Path(name)
        options = work / "java.options"  # a proxy's password on the command line would appear in the process list
        options.write_text(argument_file(source.java_options))
        module = work / "ivy.xml"
        module.write_text(ivy_module(bundle))
        command: list[str | Path] = [executable, f"@{options}", "-cp", ivy, "org.apache.ivy.Main"]
        command += ["-settings", source.settings_file(work), "-cache", work / "cache", "-ivy", module]
        command += ["-types", "jar", "bundle", "tar.gz", "-retrieve", f"{directory}/[artifact]-[revision].[ext]"]
        _run(command, str(bundle), source.name)


def _ivy_jar() -> Path:
    """Ivy's jar in the installed PySpark, else in SPARK_HOME."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ToolFailed(
            "pyspark is not installed; its Ivy downloads the broker", action="Run: pip install 'pyspark>=4.3'"
        )
    homes = [Path(spec.origin).parent, *map(Path, filter(None, [os.environ.get("SPARK_HOME")]))]
    jars = [jar for home in homes for jar in sorted((home / "jars").glob("ivy-*.jar"))]
    if not jars:
        raise ToolFailed(
            f"no ivy jar in {' or '.join(f'{home}/jars' for home in homes)}",
            action="Install the whole pyspark distribution, or set SPARK_HOME to a Spark.",
        )
    return jars[0]


def argument_file(options: Iterable[str]) -> str:
    """Java's `@file` syntax: one quoted option per line."""
    escaped = (option.replace("\\", "\\\\").replace('"', '\\"') for option in options)
    return "".join(f'"{option}"\n' for option in escaped)


def ivy_module(bundle: Bundle) -> str:
    """An ivy.xml with the bundle's modules as dependencies."""
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="spark-kafka-eos" module="embedded-broker"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(map(_dependency, bundle.modules))}</dependencies></ivy-module>"
    )


def _dependency(module: Module) -> str:
    what = f'name="{module.name}" type="{module.kind}" ext="{module.kind}" m:classifier="{module.classifier}"'
    child = f"<artifact {what}/>" if module.classifier else ""
    return (
        f'<dependency org="{module.organisation}" name="{module.name}" rev={quoteattr(module.revision)} '
        f'conf="default->default" transitive="{"false" if module.alone or child else "true"}">{child}</dependency>'
    )


def _run(command: list[str | Path], what: str, source: str) -> None:
    """Run Ivy. Show a status line on a terminal, otherwise print a line every ten jars."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"Downloading {what} from {source} (once)")
    started, jars = time.monotonic(), 0
    lines: list[str] = []
    with (
        console.status("resolving dependencies") as status,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        for line in process.stdout or ():
            lines.append(line.rstrip())
            if "[SUCCESSFUL ]" in line:
                jars += 1
                status.update(f"{jars} jars")
                if not console.is_terminal and jars % 10 == 0:
                    console.print(f"  {jars} jars")
    if process.returncode:
        reasons = [line for line in lines if re.search(r"ERROR|UNRESOLVED|FAILED|not found|Exception", line)]
        raise ToolFailed(
            f"could not download {what} from {source}",
            action="Check the version, the network, the proxy (https_proxy or JAVA_TOOL_OPTIONS) and the mirror"
            " (~/.m2/settings.xml or KAFKA_EOS_IVY_SETTINGS), then try again. After the download, no network is needed."
            " Ivy said:\n" + "\n".join(dict.fromkeys((reasons or lines)[-20:])),
        )
    console.print(f"Downloaded {jars} jars in {time.monotonic() - started:.0f} s")
