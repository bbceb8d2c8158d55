"""The jar cache: what counts as complete, how damage is mended, and that only one process fetches."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.jars import (
    PERF_TOOLS_VERSION,
    built_in_connector,
    java_avro,
    java_protobuf,
    perf_tools,
    perf_tools_class_path,
)
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing import digests
from spark_kafka_eos.testing.digests import downloaded
from spark_kafka_eos.testing.jars import (
    MANIFEST,
    Bundle,
    Module,
    argument_file,
    cache_directory,
    class_path,
    is_complete,
    ivy_module,
    kafka,
    provide,
)
from tests.conftest import KAFKA_35, KAFKA_39, KAFKA_OLDEST
from tests.kafka_tools import kafka_before_1

JARS = {"kafka_2.13-9.9.9.jar": b"broker", "slf4j-simple.jar": b"log"}


class Fetch:
    """Counts its calls and fills the directory."""

    def __init__(self, jars: Mapping[str, bytes] = JARS) -> None:
        self.calls, self.jars = 0, jars

    def __call__(self, bundle: Bundle, directory: Path) -> None:
        self.calls += 1
        for name, content in self.jars.items():
            (directory / name).write_bytes(content)


def contents(place: Path) -> dict[str, bytes]:
    return {jar.name: jar.read_bytes() for jar in place.glob("*.jar")}


def refuse(version, directory):
    raise AssertionError("a filled cache fetched again")


def test_jars_are_fetched_once(tmp_path):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    assert contents(place) == JARS
    assert provide(kafka("9.9.9"), tmp_path, refuse) == place


def test_versions_are_stored_side_by_side(tmp_path):
    fetch = Fetch()
    assert provide(kafka("1.0.0"), tmp_path, fetch) != provide(kafka("2.0.0"), tmp_path, fetch)
    assert fetch.calls == 2


@pytest.mark.parametrize(
    "damage", ["missing", "cut short", "other bytes", "one more", "no manifest", "half a manifest", "empty manifest"]
)
def test_a_half_filled_cache_is_noticed_and_mended(tmp_path, damage):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    jar, manifest = place / "kafka_2.13-9.9.9.jar", place / MANIFEST
    match damage:
        case "missing":
            jar.unlink()
        case "cut short":
            jar.write_bytes(b"bro")
        case "other bytes":
            jar.write_bytes(b"brokEr")
        case "one more":
            (place / "uninvited.jar").write_bytes(b"x")
        case "no manifest":
            manifest.unlink()
        case "half a manifest":
            manifest.write_text(manifest.read_text()[:10])
        case "empty manifest":
            manifest.write_text("{}")
    assert not is_complete(place, {})
    fetch = Fetch()
    assert contents(provide(kafka("9.9.9"), tmp_path, fetch)) == JARS
    assert fetch.calls == 1
    assert is_complete(place, {})


@pytest.mark.parametrize("whose", [".", "kafka", "kafka/9.9.9"])
def test_programs_from_somebody_elses_folder_are_not_run(tmp_path, whose, give_away):
    """Without pins, the manifest beside the jars is as good as who wrote it."""
    provide(kafka("9.9.9"), tmp_path, Fetch())
    give_away(tmp_path / whose)
    with pytest.raises(ToolFailed, match=r"the cache .* belongs to user .* Or set KAFKA_EOS_CACHE"):
        provide(kafka("9.9.9"), tmp_path, refuse)


def test_a_cache_that_others_may_change_is_closed_to_them(tmp_path):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    for folder in (tmp_path, place.parent, place):
        folder.chmod(0o777)
    assert provide(kafka("9.9.9"), tmp_path, refuse) == place
    assert [folder.stat().st_mode & 0o777 for folder in (tmp_path, place.parent, place)] == [0o755] * 3


def test_what_a_repair_does_not_need_is_gone_from_the_class_path(tmp_path):
    place = provide(kafka("9.9.9"), tmp_path, Fetch({"old.jar": b"old"}))
    (place / MANIFEST).unlink()
    assert contents(provide(kafka("9.9.9"), tmp_path, Fetch())) == JARS


def test_a_failed_fetch_leaves_nothing_that_looks_complete(tmp_path):
    def fail(version, directory):
        (directory / "kafka_2.13-9.9.9.jar").write_bytes(b"half")
        raise ToolFailed("no network")

    with pytest.raises(ToolFailed, match="no network"):
        provide(kafka("9.9.9"), tmp_path, fail)
    assert [file.name for file in (tmp_path / "kafka").iterdir()] == ["9.9.9.lock"]
    assert contents(provide(kafka("9.9.9"), tmp_path, Fetch())) == JARS


def test_what_killed_downloads_left_behind_is_removed_by_the_next_one(tmp_path):
    left, others = tmp_path / "kafka" / "9.9.9.partial-killed", tmp_path / "kafka" / "9.9.8.partial-runs"
    for folder in (left, others):
        (folder / "9.9.9").mkdir(parents=True)
        (folder / "9.9.9" / "half.jar").touch()
    provide(kafka("9.9.9"), tmp_path, Fetch())
    assert {file.name for file in (tmp_path / "kafka").iterdir()} == {"9.9.9", "9.9.9.lock", others.name}


def test_a_failed_repair_leaves_the_damage_to_be_noticed_again(tmp_path):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    (place / "slf4j-simple.jar").unlink()
    with pytest.raises(ToolFailed, match="returned no jar"):
        provide(kafka("9.9.9"), tmp_path, Fetch({}))
    assert not is_complete(place, {})


def test_of_many_processes_that_need_the_jars_at_once_one_fetches_them(tmp_path):
    fetch = Fetch()
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: provide(kafka("9.9.9"), tmp_path, fetch), range(8)))
    assert fetch.calls == 1
    assert {place for place in places if is_complete(place, {})} == set(places)


def test_the_lock_of_a_killed_process_is_free_again(tmp_path):
    holder = (
        "import sys; from pathlib import Path; from spark_kafka_eos.testing.jars import kafka, provide\n"
        "def fetch(bundle, directory): print('holds', flush=True); sys.stdin.read()\n"
        "provide(kafka('9.9.9'), Path(sys.argv[1]), fetch)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds\n"
        process.kill()
        process.wait()
    assert contents(provide(kafka("9.9.9"), tmp_path, Fetch())) == JARS


def test_the_manifest_names_every_jar_with_its_digest(tmp_path):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    expected = {name: hashlib.sha256(content).hexdigest() for name, content in JARS.items()}
    assert json.loads((place / MANIFEST).read_text()) == expected


@pytest.fixture
def pins(tmp_path):
    """Kafka 9.9.9 is pinned to JARS."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  kafka/9.9.9/{name}\n" for name, content in JARS.items())
    file = tmp_path / "pins"
    file.write_text("".join(lines))
    return file


@pytest.mark.parametrize(
    ("jars", "said"),
    [
        (JARS | {"slf4j-simple.jar": b"lag"}, r"slf4j-simple\.jar has the SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}"),
        (JARS | {"uninvited.jar": b"x"}, r"uninvited\.jar is not part of it"),
        ({"slf4j-simple.jar": b"log"}, r"kafka_2\.13-9\.9\.9\.jar is missing"),
    ],
)
def test_a_pinned_release_with_another_jar_even_of_the_same_size_is_refused_and_not_kept(tmp_path, pins, jars, said):
    with pytest.raises(ToolFailed, match=rf"the repository's Kafka 9\.9\.9 is not the one that was released: {said}"):
        provide(kafka("9.9.9"), tmp_path, Fetch(jars), pins)
    assert not (tmp_path / "kafka" / "9.9.9").exists()
    assert contents(provide(kafka("9.9.9"), tmp_path, Fetch(), pins)) == JARS


def test_a_changed_jar_of_a_pinned_release_is_noticed_whatever_the_manifest_says(tmp_path, pins):
    place = provide(kafka("9.9.9"), tmp_path, Fetch(), pins)
    (place / "slf4j-simple.jar").write_bytes(b"lag")
    (place / MANIFEST).write_text(json.dumps(digests.digests(place)))
    assert contents(provide(kafka("9.9.9"), tmp_path, Fetch(), pins)) == JARS


def test_every_release_that_the_package_and_its_tests_use_is_pinned():
    brokers = [kafka(), kafka(PERF_TOOLS_VERSION), *map(kafka, (KAFKA_39, KAFKA_35, KAFKA_OLDEST))]
    clients = map(kafka_before_1, ("0.9.0.1", "0.10.2.2"))  # those of every run
    for bundle in (
        *brokers,
        *clients,
        perf_tools(),
        java_avro(),
        java_protobuf(),
        *map(built_in_connector, ("3.5.9", "4.0.5", "4.1.4", "4.3.0")),
    ):
        names = digests.pinned(bundle.name, bundle.version)
        for module in bundle.modules:
            assert f"{module.name}-{module.revision}.jar" in names, bundle


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"KAFKA_EOS_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/spark-kafka-eos"),
        ({}, "/home/someone/.cache/spark-kafka-eos"),
        ({"KAFKA_EOS_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/someone/.cache/spark-kafka-eos"),
    ],
)
def test_the_cache_is_where_the_user_says(environment, expected):
    assert cache_directory(environment, Path("/home/someone")) == Path(expected)


def test_a_filled_cache_needs_neither_java_nor_network(tmp_path, monkeypatch):
    place = provide(kafka("9.9.9"), tmp_path, Fetch())
    monkeypatch.setenv("KAFKA_EOS_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java here"))
    assert class_path("9.9.9") == f"{place}/*"


def test_a_java_option_with_quotes_and_backslashes_survives_the_argument_file():
    assert argument_file(['-Dp=a"b\\c d', "-Dx=y"]) == '"-Dp=a\\"b\\\\c d"\n"-Dx=y"\n'


def test_the_ivy_module_asks_for_the_broker_and_a_log_binding():
    module = ivy_module(kafka('4.3.1"'))
    assert 'name="kafka_2.13" rev=\'4.3.1"\'' in module
    assert 'name="slf4j-simple" rev="1.7.36"' in module


def test_of_a_classifier_only_that_jar_is_asked_for():
    module = Module(organisation="org.apache.kafka", name="kafka-storage", revision="4.3.1", classifier="test")
    bundle = Bundle(name="kafka-storage", version="4.3.1", modules=(module,))
    (dependency,) = re.findall(r"<dependency.*</dependency>", ivy_module(bundle))
    assert 'name="kafka-storage" rev="4.3.1"' in dependency
    assert 'transitive="false"' in dependency
    assert 'm:classifier="test"' in dependency


def test_an_archive_is_asked_for_by_its_kind_and_kept_like_a_jar(tmp_path):
    app = Module(organisation="io.apicurio", name="app", revision="2", classifier="all", kind="tar.gz")
    bundle = Bundle(name="apicurio", version="2", modules=(app,))
    assert '<artifact name="app" type="tar.gz" ext="tar.gz" m:classifier="all"/>' in ivy_module(bundle)
    fetch = Fetch({"app-2.tar.gz": b"x"})
    for _ in range(2):
        assert downloaded(provide(bundle, tmp_path, fetch)) == [tmp_path / "apicurio" / "2" / "app-2.tar.gz"]
    assert fetch.calls == 1


def test_the_perf_tools_run_on_the_jars_of_their_own_release_whatever_the_brokers(tmp_path, monkeypatch):
    for bundle in (kafka("9.9.9"), perf_tools("9.9.9")):
        provide(bundle, tmp_path, Fetch({f"{bundle.name}.jar": b"x"}))
    monkeypatch.setenv("KAFKA_EOS_CACHE", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java here"))
    expected = [tmp_path / "kafka" / "9.9.9" / "*", tmp_path / "kafka-tools" / "9.9.9" / "kafka-tools.jar"]
    assert perf_tools_class_path("9.9.9") == ":".join(map(str, expected))
