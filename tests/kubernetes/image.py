"""The image of a Dockerfile, built step by step without a container engine: each instruction is done to a folder.

The images that it starts from cannot be pulled here, so these stand in for them:

- `python:VERSION-slim-SUITE`: Debian's minimal system of that suite from Debian's packages (debootstrap), with the
  libraries of Python, and in /usr/local the Python of this version that the machine has. It is made once, in build/.
- `apache/spark:VERSION-scala`: the machine's Java, the installed PySpark of the tests as /opt/spark, and
  entrypoint.sh of this folder. PySpark has Spark's jars and scripts; its release may be another one.

Needs root, apt-get of Debian, and a Python of the image's version.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_eos.testing.driver import spark_submit
from tests.kubernetes.containers import Container, Mount
from tests.kubernetes.dockerfile import Stage, stages
from tests.libhdfs import java_home
from tests.pages import ROOT

_HERE = Path(__file__).parent
# What python:…-slim has besides Debian's minimal system.
_LIBRARIES = (
    "ca-certificates netbase tzdata libbz2-1.0 libcrypt1 libexpat1 libffi8 liblzma5 libncursesw6 libnsl2 libreadline8"
    " libsqlite3-0 libssl3 libtirpc3 libuuid1 zlib1g"
)
# So that packages can be downloaded as the machine does it: behind a proxy, from a mirror.
_FOR_DOWNLOADS = ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt", "/etc/apt/apt.conf.d")
_STEP_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A root file system, and how a process is started in it."""

    root: Path
    environment: dict[str, str]
    folder: str
    user: str
    entrypoint: tuple[str, ...]


def build(text: str, context: Path, folder: Path) -> Image:
    """The image of the Dockerfile's last stage, in `folder`. Raises CalledProcessError for a step that fails."""
    *earlier, last = stages(text)
    roots = {stage.name: _started(stage.image, folder / stage.name) for stage in earlier}
    if any(stage.instructions for stage in earlier):
        raise ValueError("only the last stage of a Dockerfile may have instructions here")
    root = _started(last.image, folder / "image")
    return _instructed(last, root, {"": context, **roots})


def _started(image: str, root: Path) -> Path:
    """What stands in for an image that a stage is built from, as a folder of its own."""
    if found := re.fullmatch(r"python:(\d+\.\d+)-slim-(\w+)", image):
        # `cp`, which keeps owners
        subprocess.run(["cp", "-a", _python_image(found[1], found[2]), root], check=True, timeout=_STEP_S)
        return root
    if re.fullmatch(r"apache/spark:[\d.]+-scala", image):
        links = {"opt/java/openjdk": java_home(), "opt/spark": spark_submit().parents[1]}
        links |= {f"opt/{name}": _HERE / name for name in ("entrypoint.sh", "decom.sh")}
        for name, to in links.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(to)
        return root
    raise ValueError(f"nothing stands in for the image {image}")


def _instructed(stage: Stage, root: Path, sources: dict[str, Path]) -> Image:
    environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
    folder, user, entrypoint = "/", "0", tuple[str, ...](["python3"])
    for each in stage.instructions:
        match each.name:
            case "COPY":
                words = each.words(environment)
                origin = words.pop(0).partition("=")[2] if words[0].startswith("--from=") else ""
                _copy(sources[origin], words[:-1], root, words[-1])
            case "RUN":
                _run(root, each.rest, environment, folder)
            case "ENV":
                environment |= dict(word.split("=", 1) for word in each.words(environment))
            case "WORKDIR":
                folder = each.rest
                (root / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "USER":
                user = each.rest
            case "ENTRYPOINT":
                entrypoint = tuple(each.list_of_words())
            case other:
                raise ValueError(f"{other} after FROM is not known here")
    return Image(root=root, environment=environment, folder=folder, user=user, entrypoint=entrypoint)


def _copy(origin: Path, patterns: list[str], root: Path, target: str) -> None:
    place = root / target.lstrip("/")
    found = [path for pattern in patterns for path in sorted(origin.glob(pattern.lstrip("/")))]
    if not found or (len(found) > 1 and not target.endswith("/")):
        raise ValueError(f"COPY of {' '.join(patterns)} finds {len(found)} files for {target}")
    for path in found:
        if path.is_dir():
            shutil.copytree(path, place, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        else:
            to = place / path.name if target.endswith("/") else place
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)


def _run(root: Path, command: str, environment: dict[str, str], folder: str) -> None:
    machine = {
        name: value for name, value in os.environ.items() if re.match(r"PIP_(?!FIND)|\w+_proxy$", name, re.IGNORECASE)
    }
    step = Container(
        root=root,
        command=["/bin/sh", "-c", command],
        environment=machine | environment,
        folder=folder,
        mounts=[
            Mount(source=Path(name), target=name, read_only=True) for name in _FOR_DOWNLOADS if Path(name).exists()
        ],
    )
    done = subprocess.run(step.arguments(), check=False, capture_output=True, text=True, timeout=_STEP_S)
    assert done.returncode == 0, f"RUN {command} ended with {done.returncode}: {(done.stdout + done.stderr)[-3000:]}"


def _python_image(version: str, suite: str) -> Path:
    """Debian of this suite with this Python, made once."""

    def make(folder: Path) -> None:
        _debian(suite, folder)
        _install_python(version, folder / "usr" / "local")
        subprocess.run(["chroot", folder, "ldconfig"], check=True, timeout=_STEP_S)

    return _once(f"python-{version}-slim-{suite}", make)


def _once(name: str, make: Callable[[Path], None]) -> Path:
    place = ROOT / "build" / "images" / name
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=f"{name}.partial-") as folder:
            made = Path(folder) / name
            make(made)
            made.rename(place)
    return place


def _debian(suite: str, folder: Path) -> None:
    """With a debootstrap that is unpacked, not installed."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        subprocess.run(["apt-get", "download", "--quiet", "debootstrap"], check=True, cwd=work, timeout=_STEP_S)
        [package] = work.glob("debootstrap_*.deb")
        subprocess.run(["dpkg", "-x", package, work / "unpacked"], check=True, timeout=_STEP_S)
        unpacked = work / "unpacked" / "usr"
        command: list[str | Path] = [
            unpacked / "sbin" / "debootstrap",
            "--variant=minbase",
            f"--include={_LIBRARIES.replace(' ', ',')}",
        ]
        environment = os.environ | {"DEBOOTSTRAP_DIR": str(unpacked / "share" / "debootstrap")}
        done = subprocess.run(
            [*command, suite, folder],
            check=False,
            capture_output=True,
            text=True,
            timeout=_STEP_S,
            env=environment,
        )
        assert done.returncode == 0, done.stdout[-3000:]


def _install_python(version: str, prefix: Path) -> None:
    """Without what is installed in it, and without its tests."""
    code = "import sys; print(sys.base_prefix)"
    origin = Path(
        subprocess.run([_python(version), "-c", code], check=True, capture_output=True, text=True).stdout[:-1]
    )
    for library in (origin / "lib").glob("libpython*.so*"):
        shutil.copy(library, prefix / "lib", follow_symlinks=False)
    without = shutil.ignore_patterns("test", "tests", "site-packages", "__pycache__")
    packages = prefix / "lib" / f"python{version}"
    shutil.copytree(origin / "lib" / packages.name, packages, dirs_exist_ok=True, ignore=without)
    (packages / "site-packages").mkdir()
    shutil.copy(origin / "bin" / packages.name, prefix / "bin")
    for name in ("python", "python3"):
        (prefix / "bin" / name).symlink_to(packages.name)


def _python(version: str) -> str | Path:
    name = f"python{version}"
    found: list[str | Path] = [*filter(None, [shutil.which(name)]), *Path.home().glob(f".pyenv/versions/*/bin/{name}")]
    for python in found:  # pyenv has programs of these names that only say what to do
        if subprocess.run([python, "-c", "pass"], check=False, capture_output=True).returncode == 0:
            return python
    raise AssertionError(f"the image's Python, {name}, is not on this machine")
