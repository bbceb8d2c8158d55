"""PySpark's Ivy really fetches: from a tiny Maven repository on disk, reached as a mirror. Needs Java, no network."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing import repository as where

pytestmark = pytest.mark.broker

KAFKA, SLF4J = ("org.apache.kafka", "kafka_2.13"), ("org.slf4j", "slf4j-simple")


def publish(
    root: Path,
    module: tuple[str, str],
    version: str,
    *,
    packaging: str = "jar",
    needs: Sequence[tuple[str, str, str, str]] = (),
) -> None:
    """Put a module there; `needs` are (group, name, version, scope)."""
    group, name = module
    folder = root / group.replace(".", "/") / name / version
    folder.mkdir(parents=True)
    dependencies = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{n}</artifactId><version>{v}</version><scope>{s}</scope></dependency>"
        for g, n, v, s in needs
    )
    (folder / f"{name}-{version}.pom").write_text(
        f"<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><packaging>{packaging}</packaging><dependencies>{dependencies}</dependencies></project>"
    )
    (folder / f"{name}-{version}.jar").write_bytes(name.encode())


def use(settings: Path, mirror: str) -> None:
    settings.write_text(
        f"<settings><mirrors><mirror><id>m</id><mirrorOf>*</mirrorOf><url>{mirror}</url></mirror></mirrors></settings>"
    )


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository that ~/.m2/settings.xml names as the mirror of everything."""
    home, root = tmp_path / "home", tmp_path / "repository"
    settings = home / ".m2" / "settings.xml"
    settings.parent.mkdir(parents=True)
    use(settings, root.as_uri())
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KAFKA_EOS_CACHE", str(tmp_path / "cache"))
    for name in ("KAFKA_EOS_IVY_SETTINGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    return root


def test_the_broker_and_what_it_needs_at_run_time_come_from_the_mirror(mirror, capsys):
    publish(mirror, ("g", "bundle"), "1", packaging="bundle", needs=[("g", "transitive", "1", "runtime")])
    publish(mirror, ("g", "transitive"), "1")
    publish(
        mirror,
        KAFKA,
        "9.9.9",
        needs=[("g", "bundle", "1", "compile"), ("g", "missing", "1", "test"), ("g", "absent", "1", "provided")],
    )
    publish(mirror, SLF4J, "1.7.36")
    place = Path(jars.class_path("9.9.9").removesuffix("/*"))
    assert sorted(jar.name for jar in place.glob("*.jar")) == [
        "bundle-1.jar",
        "kafka_2.13-9.9.9.jar",
        "slf4j-simple-1.7.36.jar",
        "transitive-1.jar",
    ]
    assert (place / "bundle-1.jar").read_bytes() == b"bundle"
    shown = capsys.readouterr().err
    assert mirror.as_uri() in shown
    assert "Downloaded 4 jars" in shown


def test_a_version_that_does_not_exist_is_an_error_that_names_the_mirror_and_leaves_no_cache(mirror, tmp_path):
    publish(mirror, SLF4J, "1.7.36")
    with pytest.raises(
        ToolFailed, match=r"(?s)could not download Kafka 9\.9\.9 from file:.*kafka_2\.13;9\.9\.9: not found"
    ) as error:
        jars.class_path("9.9.9")
    assert mirror.as_uri() in str(error.value)
    assert not (tmp_path / "cache" / "kafka" / "9.9.9").exists()


def test_a_jar_missing_from_the_mirror_is_an_error(mirror):
    publish(mirror, SLF4J, "1.7.36")
    publish(mirror, KAFKA, "9.9.9", needs=[("g", "absent", "1", "compile")])
    with pytest.raises(ToolFailed, match="g#absent;1: not found"):
        jars.class_path("9.9.9")


def test_a_mirror_that_accepts_and_never_answers_is_an_error_in_bounded_time(mirror, tmp_path, monkeypatch):
    monkeypatch.setattr(where, "TIMEOUT_MS", 200)
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        use(tmp_path / "home" / ".m2" / "settings.xml", f"http://127.0.0.1:{silent.getsockname()[1]}/")
        with pytest.raises(ToolFailed, match=r"could not download Kafka 9\.9\.9 from http://127\.0\.0\.1"):
            jars.class_path("9.9.9")
