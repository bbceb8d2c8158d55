"""Hadoop's libhdfs, with which PyArrow reads and writes `hdfs://`: compiled once, to `build/`, from the source that the
crate hdfs-sys has. A node of a Hadoop cluster has it in `$HADOOP_HOME/lib/native`; no registry has it compiled.

Needs cargo, which downloads that crate by the hash in `tests/hdfs_sys/Cargo.lock`, a C compiler and a JDK
with its headers.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from spark_kafka_eos.testing.java import java
from tests.pages import ROOT

_CRATE = ROOT / "tests" / "hdfs_sys"
_PARTS = ("exception", "jni_helper", "hdfs", "jclasses", "os/posix/mutexes", "os/posix/thread")
_SOURCES = (*_PARTS, "os/posix/thread_local_storage")
_HEADERS = (".", "include", "os", "os/posix")


def hadoop_home(folder: Path) -> Path:
    """Make `folder` a HADOOP_HOME that has libhdfs, and return it."""
    native = folder / "lib" / "native"
    native.mkdir(parents=True)
    (native / "libhdfs.so").symlink_to(_compiled())
    return folder


def java_home() -> Path:
    """The JDK whose Java the tests run."""
    return Path(java()).resolve().parents[1]


def _compiled() -> Path:
    library = ROOT / "build" / "libhdfs.so"
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            made = Path(folder, library.name)
            _compile(_source(), made)
            made.replace(library)
    return library


def _source() -> Path:
    """The crate's folder with libhdfs of Hadoop 3.3, downloaded first if necessary."""
    command: list[str | Path] = [
        "cargo",
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--manifest-path",
        _CRATE / "Cargo.toml",
    ]
    done = subprocess.run(command, check=True, capture_output=True, timeout=300)
    [found] = [each["manifest_path"] for each in json.loads(done.stdout)["packages"] if each["name"] == "hdfs-sys"]
    return Path(found).parent / "libhdfs" / "hdfs_3_3"


def _compile(source: Path, library: Path) -> None:
    home = java_home()
    headers = [source.parent, *(source / name for name in _HEADERS), home / "include", home / "include" / "linux"]
    server = home / "lib" / "server"
    command: list[str | Path] = ["cc", "-shared", "-fPIC", "-O1", "-w", "-fcommon", *(f"-I{path}" for path in headers)]
    command += [source / f"{name}.c" for name in _SOURCES]
    command += [f"-L{server}", "-ljvm", f"-Wl,-rpath,{server}", "-lpthread", "-o", library]
    subprocess.run(command, check=True, timeout=120)
