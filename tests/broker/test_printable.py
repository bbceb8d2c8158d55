"""Every command on a cluster where everybody chose the worst names: what it prints, a terminal only shows.

The commands are found, not listed: a new one fails here until it has a scene.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
import typer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from typer.testing import CliRunner

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.ledger.source_mark import source_mark
from spark_kafka_eos.observe import trace_file
from spark_kafka_eos.tools.cli.main import app
from tests.broker.conftest import options_of
from tests.copying import Copy
from tests.hostile import EVIL, is_harmless
from tests.letters import headers_of
from tests.producing import produce, transact
from tests.unit.tools.cli.test_trace import report, request

pytestmark = pytest.mark.broker


class World(NamedTuple):
    """A broker, and what strangers left on it: `id` is a query's, with an open transaction in `held`."""

    bootstrap: str
    id: str
    held: str
    books: str
    source: str
    target: str
    dead: str
    traces: Path


@pytest.fixture(scope="module")
def world(kafka, topic, tmp_path_factory) -> Iterator[World]:
    books = kafka.create_topic("hostile-books", 1, {"cleanup.policy": "compact"})
    source, target = topic("hostile-in", 2, {"retention.ms": -1}), topic("hostile-out", 2)
    dead, held = topic("hostile-dead", 1), topic("hostile-held", 1)
    for partition in (0, 1):
        produce(kafka.bootstrap, source, [EVIL.encode()] * 20, partition=partition, timestamp=1_700_000_000_000)
    cause: Cause = EVIL  # type: ignore[assignment]
    letter = DeadLetter(
        cause=cause, message=EVIL, topic=EVIL, partition=0, offset=1, query_id=EVIL, output_topic=EVIL,
    )  # fmt: skip
    produce(kafka.bootstrap, dead, [EVIL.encode()], key=EVIL.encode(), headers=headers_of(letter))
    traces = tmp_path_factory.mktemp("traces")
    sent = (request("Produce", 30.0, EVIL, about=EVIL), request(EVIL, 40.0, ""))
    trace_file.append(traces, EVIL[:20], report(requests=sent, query_id=EVIL, error=EVIL).to_json())
    with Cluster(options_of(kafka.bootstrap)) as cluster:
        query = Copy(
            kafka.bootstrap, cluster, source, target, query=EVIL,
            options={"ledgerTopic": books, "kafka.transactional.id": EVIL},
        )  # fmt: skip
        query.run(0, 0, 10)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "hostile"})
        consumer.commit(offsets=[RdTopicPartition(source, 0, 3, metadata=source_mark(EVIL))], asynchronous=False)
        consumer.close()
        owner = transact(kafka.bootstrap, held, [b"x"], "leave open", transactional_id=f"open{EVIL}")
        yield World(kafka.bootstrap, EVIL, held, books, source, target, dead, traces)
        owner.abort_transaction(30)


class Scene(NamedTuple):
    """A command's words after its name; `{name}` is a field of the world. `shows`: whether names of strangers are in
    what it prints.
    """

    words: tuple[str, ...]
    shows: bool = True


_KAFKA = ("--bootstrap-servers", "{bootstrap}")
_QUERY = ("{id}", *_KAFKA, "--ledger-topic", "{books}")
SCENES: Mapping[str, Scene | str] = {
    "broker": "prints what its own arguments name",
    "demo": "runs a broker and data of its own",
    "explain": Scene(("{id}",), shows=False),
    "dead-letters count": Scene(("{dead}", *_KAFKA)),
    "dead-letters show": Scene(("{dead}", *_KAFKA, "--values")),
    "dead-letters replay": Scene(("{dead}", *_KAFKA, "--dry-run")),
    "doctor": Scene(("--checkpoint-location", "/none/{id}")),
    "exporter": Scene((*_KAFKA, "--ledger-topic", "{books}", "--once")),
    "preflight": Scene(
        (*_KAFKA, "--transactional-id", "hostile", "--topic", "{target}", "--source", "{source}")
    ),
    "query list": Scene((*_KAFKA, "--ledger-topic", "{books}")),
    "query show": Scene(_QUERY),
    "query lag": Scene(_QUERY, shows=False),
    "query ledger": Scene(_QUERY),
    "query history": Scene(_QUERY, shows=False),
    "query resolve": Scene((*_QUERY, "--checkpoint-location", "{traces}")),
    "top": "tests/unit/tools/cli/test_terminal.py::test_the_live_screen_shows_no_escape_sequence_either",
    "trace": Scene((EVIL[:20], "--dir", "{traces}", "--html", "{traces}/page.html", "--svg", "{traces}/picture.svg")),
    "transactions list": Scene(_KAFKA),
    "transactions describe": Scene(("{id}", *_KAFKA)),
    "transactions hanging": Scene((*_KAFKA, "--topic", "{held}"), shows=False),
    "transactions counts": Scene(_KAFKA, shows=False),
    "transactions abort": Scene(("open{id}", *_KAFKA, "--dry-run")),
    "verify": Scene(
        ("--topic", "{target}", *_KAFKA, "--source", "{source}", "--ledger-topic", "{books}",
         "--transactional-id", "{id}"),
        shows=False,
    ),
}  # fmt: skip


def commands(group, before: str = "") -> Iterator[str]:
    """The names of every command, as they are typed."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_command_has_a_scene_or_a_reason():
    assert set(commands(typer.main.get_command(app))) == SCENES.keys()


def words_of(scene: Scene, world: World) -> list[str]:
    """The command's words after its name, in this world."""
    words = [word.replace("{id}", world.id) for word in scene.words]
    return [word if word == EVIL or "{" not in word else word.format_map(world._asdict()) for word in words]


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if isinstance(scene, Scene)])
def test_a_terminal_only_shows_what_a_command_prints(world, name):
    scene = SCENES[name]
    assert isinstance(scene, Scene)
    words = words_of(scene, world)
    for terminal in (False, True):
        colours = {"FORCE_COLOR": "1", "TERM": "xterm-256color"} if terminal else {}
        done = CliRunner(env={"COLUMNS": "200", **colours}).invoke(app, [*name.split(), *words])
        assert done.exit_code in (0, 1, 3) or name == "explain", done.output
        assert is_harmless(done.output, terminal=terminal), ascii(done.output)
        assert not scene.shows or any(each in done.output for each in ("�[2K", r"\x1b[2K")), ascii(done.output)
    for page in world.traces.glob("p*"):
        said = page.read_text()
        assert is_harmless(said) and "�[2K" in said


def contents(world: World) -> object:
    """What a cluster has, by Kafka's own client: topics with ends, groups with offsets, and the query's id."""
    admin = AdminClient({"bootstrap.servers": world.bootstrap, "log_level": 0})
    topics = admin.list_topics(timeout=30).topics
    partitions = [RdTopicPartition(name, n) for name, topic in topics.items() for n in topic.partitions]
    partitions = [at for at in partitions if at.topic != world.held]  # its transaction ends by its timeout
    ends = admin.list_offsets({at: OffsetSpec.latest() for at in partitions})
    groups = [group.group_id for group in admin.list_consumer_groups().result(30).valid]
    offsets = [admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(each)])[each] for each in groups]
    return (
        {(at.topic, at.partition): end.result(30).offset for at, end in ends.items()},
        {each.result(30).group_id: str(each.result(30).topic_partitions) for each in offsets},
        CliRunner().invoke(app, ["transactions", "describe", world.id, "--bootstrap-servers", world.bootstrap]).stdout,
    )


def test_no_command_that_only_looks_changes_anything_in_a_cluster(world):
    before = contents(world)
    scenes = {name: scene for name, scene in SCENES.items() if isinstance(scene, Scene)}
    looks = [name for name in scenes if "{bootstrap}" in scenes[name].words]
    assert {"preflight", "exporter", "verify", "dead-letters replay", "query show", "transactions abort"} <= {*looks}
    for name in looks:
        done = CliRunner().invoke(app, [*name.split(), *words_of(scenes[name], world)])
        assert done.exit_code in (0, 1, 3), done.output
        assert contents(world) == before, name


def test_json_has_the_names_as_they_are_and_is_ascii(world):
    where = ["--bootstrap-servers", world.bootstrap, "--ledger-topic", world.books]
    done = CliRunner().invoke(app, ["query", "list", "--json", *where])
    assert done.output.isascii()
    assert EVIL in [each["transactional_id"] for each in json.loads(done.output)]
