"""Transactions in every state, as this package and as Kafka's own TransactionsCommand see them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
from confluent_kafka import KafkaException
from typer.testing import CliRunner, Result

from spark_kafka_eos.errors import ProducerFenced, ToolFailed
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.kafka.producing.produce import Appender
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import LogEnds
from spark_kafka_eos.kafka.protocol.transactions import idempotent_identity
from spark_kafka_eos.options.reserved import LEDGER_TOPIC
from spark_kafka_eos.preflight.rights import Right
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.proxy import Fault, Proxy
from spark_kafka_eos.tools.cli.main import app
from spark_kafka_eos.tools.cli.top import Look
from spark_kafka_eos.tools.cli.top_screen import RowTable, Top
from spark_kafka_eos.tools.cli.transactions import transactions
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey
from spark_kafka_eos.tools.operators.survey import Ending, ProducerCounts, Survey, active_ids, producer_counts
from spark_kafka_eos.tools.verify import verify
from tests.broker.conftest import batch_of, options_of
from tests.coordinating import TransactionCoordinator
from tests.copying import Copy, Stage
from tests.kafka_tools import table, tool
from tests.pages import ROOT
from tests.principals import add_user
from tests.producing import produce, transact
from tests.terminal import KAFKA_EOS, terminal

pytestmark = pytest.mark.broker

TIMEOUT_MS = 600_000
ALTERNATE_SCREEN_LEFT = b"\x1b[?1049l"
numbers = itertools.count(1)
OPEN, GHOST, PREPARED, DONE = "open", "ghost", "prepared", "done"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A broker with an open transaction, a hanging, a prepared and a completed one, each in a topic of its name."""

    kafka: EmbeddedKafka
    cluster: Cluster
    ghost: ProducerIdentity
    markers: Fault  # of coordinators, not of an operator: held

    def survey(self, *topics: str) -> Survey:
        partitions = partitions_of(self.cluster, topics) if topics else None
        return survey(self.cluster, partitions, now_ms=int(time.time() * 1000), all_ids=True)

    def kafkas(self, *command: object) -> list[dict[str, str]]:
        return table(tool("TransactionsCommand", "--bootstrap-server", self.kafka.bootstrap, *command))


@pytest.fixture(scope="module", params=["kafka_version", "tv1_version"], ids=["TV2", "TV1"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    direct, advertised = free_ports(2)
    config = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{advertised}",
        "transaction.partition.verification.enable": "false",  # else nothing hangs any more
    }
    with Proxy() as proxy:
        proxy.relay(1, advertised, to=direct)
        version = request.getfixturevalue(request.param)
        with (
            EmbeddedKafka(version, port=direct, config=config) as kafka,
            Cluster(options_of(kafka.bootstrap)) as cluster,
        ):
            for topic in (OPEN, GHOST, PREPARED, DONE):
                kafka.create_topic(topic, 2)
            yield staged(kafka, cluster, proxy)


def staged(kafka: EmbeddedKafka, cluster: Cluster, proxy: Proxy) -> Scene:
    owner = begun(cluster, OPEN, [TopicPartition(OPEN, 0), TopicPartition(OPEN, 1)])
    done = begun(cluster, DONE, [TopicPartition(DONE, 0)])
    owner_of(cluster, DONE).end(done, commit=True)
    while survey(cluster, now_ms=0, all_ids=True).transactions[DONE].state != "CompleteCommit":
        time.sleep(0.02)
    prepared = begun(cluster, PREPARED, [TopicPartition(PREPARED, 1)])
    held = proxy.add("WriteTxnMarkers@broker-*:*:hold")
    owner_of(cluster, PREPARED).end(prepared, commit=True)
    held.wait()
    ghost = idempotent_identity(cluster)
    ghost = ProducerIdentity(transactional_id="nobody", producer_id=ghost.producer_id, epoch=ghost.epoch)
    append(cluster, ghost, [TopicPartition(GHOST, 0)])
    append(cluster, owner, [TopicPartition(OPEN, 0)], sequence=2)
    return Scene(kafka=kafka, cluster=cluster, ghost=ghost, markers=held)


def part_of(topic: str, partition: int, *, at: int = 0) -> list[object]:
    return ["--topic", topic, "--partition", partition, "--start-offset", at]


def owner_of(cluster: Cluster, name: str) -> TransactionCoordinator:
    return TransactionCoordinator(cluster, name, TIMEOUT_MS)


def begun(cluster: Cluster, name: str, partitions: list[TopicPartition]) -> ProducerIdentity:
    """A transaction of two records in each partition."""
    coordinator = owner_of(cluster, name)
    identity = coordinator.init_producer_id()
    coordinator.add_partitions(identity, partitions)
    append(cluster, identity, partitions)
    return identity


def append(
    cluster: Cluster, identity: ProducerIdentity, partitions: list[TopicPartition], *, sequence: int = 0
) -> None:
    with Appender(cluster, identity, transaction_version=identity.transaction_version) as appender:
        for tp in partitions:
            appender.append(tp, batch_of(identity, sequence, [b"a", b"b"]), 2, sequence)
        appender.flush()


def test_list_and_describe_agree_with_kafkas_own(scene):
    ours = scene.survey()
    assert {
        (each.transactional_id, str(each.coordinator), str(each.producer_id), each.state) for each in ours.listings
    } == {
        (row["TransactionalId"], row["Coordinator"], row["ProducerId"], row["TransactionState"])
        for row in scene.kafkas("list")
    }
    for name in (OPEN, PREPARED, DONE):
        [theirs] = scene.kafkas("describe", "--transactional-id", name)
        facts = ours.transactions[name]
        theirs["TopicPartitions"] = ",".join(sorted(theirs["TopicPartitions"].split(",")))
        assert theirs == {
            "CoordinatorId": str(facts.coordinator),
            "TransactionalId": name,
            "ProducerId": str(facts.producer_id),
            "ProducerEpoch": str(facts.epoch),
            "TransactionState": facts.state,
            "TransactionTimeoutMs": str(facts.timeout_ms),
            "CurrentTransactionStartTimeMs": str(facts.started_ms),
            "TransactionDurationMs": theirs["TransactionDurationMs"],
            "TopicPartitions": ",".join(map(str, facts.partitions)),
        }
        later = int(theirs["TransactionDurationMs"]) - (facts.age_ms or 0)
        assert 0 <= later < 60_000, "theirs was asked later"
    assert {name: facts.state for name, facts in ours.transactions.items()} == {
        OPEN: "Ongoing",
        PREPARED: "PrepareCommit",
        DONE: "CompleteCommit",
    }


def test_what_hangs_is_what_kafkas_own_finds_hanging(scene):
    ours = scene.survey(OPEN, GHOST, PREPARED, DONE)
    assert ours.complete
    theirs = scene.kafkas("find-hanging", "--broker-id", 1, "--max-transaction-timeout", 0)
    assert [
        (
            part.partition.topic,
            str(part.partition.partition),
            str(part.producer.producer_id),
            str(part.producer.epoch),
            str(part.producer.coordinator_epoch),
            str(part.producer.start_offset),
            str(part.producer.last_timestamp_ms),
        )
        for part in ours.hanging
    ] == [tuple(row.values())[:-1] for row in theirs]
    [hanging] = ours.hanging
    assert (hanging.partition, hanging.producer.producer_id) == (TopicPartition(GHOST, 0), scene.ghost.producer_id)
    assert (hanging.held_offsets, hanging.log_ends) == (2, LogEnds(last_stable_offset=0, high_watermark=2))


def test_each_part_says_who_ends_it_and_what_it_holds_back(scene):
    ours = scene.survey(OPEN, GHOST, PREPARED, DONE)
    assert [(str(part.partition), part.ending, part.held_offsets) for part in ours.open_parts] == [
        ("ghost-0", Ending.NOBODY, 2),
        ("open-0", Ending.OWNER, 4),
        ("open-1", Ending.OWNER, 2),
        ("prepared-1", Ending.COORDINATOR, 2),
    ]
    owner = ours.transactions[OPEN]
    assert owner.timeout_left_ms is not None and 0 < owner.timeout_left_ms <= TIMEOUT_MS
    assert [part.since_ms for part in ours.parts_of(OPEN)] == [owner.started_ms] * 2


def test_the_counts_are_those_of_the_leaders_and_the_coordinators(scene):
    ours = scene.survey(OPEN, GHOST, PREPARED, DONE)
    counted = producer_counts(ours.producers)
    assert {str(tp): counts.open_transactions for tp, counts in counted.items()} == {
        "done-0": 0,
        "done-1": 0,
        "ghost-0": 1,
        "ghost-1": 0,
        "open-0": 1,
        "open-1": 1,
        "prepared-0": 0,
        "prepared-1": 1,
    }
    for tp in (TopicPartition(OPEN, 0), TopicPartition(DONE, 0)):
        theirs = scene.kafkas("describe-producers", "--topic", tp.topic, "--partition", tp.partition)
        started = [row for row in theirs if row["CurrentTransactionStartOffset"] != "None"]
        assert counted[tp] == ProducerCounts(producer_ids=len(theirs), open_transactions=len(started))
    assert active_ids(ours.listings) == {1: {"Ongoing": 1, "PrepareCommit": 1, "CompleteCommit": 1}}


# -- the command


def run(scene: Scene, *arguments: object, answer: str = "") -> Result:
    at = ["--bootstrap-servers", scene.kafka.bootstrap]
    return CliRunner(env={"COLUMNS": "80"}).invoke(transactions, [*map(str, arguments), *at], input=answer)


def test_list_shows_the_oldest_open_transaction_first_and_fits_a_terminal(scene):
    shown = run(scene, "list")
    assert shown.exit_code == 0, shown.output
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.output.splitlines() if "│" in line]
    assert [(row[0], row[1], row[6]) for row in rows] == [
        (OPEN, "Ongoing", "6"),
        (PREPARED, "PrepareCommit", "2"),
        (DONE, "CompleteCommit", ""),
    ]
    assert max(map(len, shown.output.splitlines())) <= 80
    [first, second] = json.loads(run(scene, "list", "--open", "--json").stdout)["transactions"]
    assert (first["transactional_id"], first["client"], second["timeout_left_ms"]) == (OPEN, None, None)
    assert [(each["topic"], each["partition"], each["held_offsets"]) for each in first["partitions"]] == [
        (OPEN, 0, 4),
        (OPEN, 1, 2),
    ]


def test_describe_shows_where_a_transaction_holds_readers_and_that_its_client_is_unknown(scene):
    shown = run(scene, "describe", PREPARED)
    assert shown.exit_code == 0, shown.output
    assert "unknown: Kafka does not store it" in shown.output
    [row] = [line.split("│")[1:-1] for line in shown.output.splitlines() if "prepared-1" in line]
    assert [cell.strip() for cell in row[:4]] == ["prepared-1", "coordinator", "0", "2"]
    assert "no coordinator knows" in str(run(scene, "describe", "nobody").exception)


def test_counts_are_shown_for_coordinators_and_partitions(scene):
    shown = json.loads(run(scene, "counts", "--topic", OPEN, "--topic", GHOST, "--json").stdout)
    [coordinator] = shown["coordinators"]
    assert coordinator["states"] == {"CompleteCommit": 1, "Ongoing": 1, "PrepareCommit": 1}
    assert [
        (each["producer_ids"], each["open_transactions"], each["held_offsets"]) for each in shown["partitions"]
    ] == [
        (1, 1, 2),
        (0, 0, 0),
        (1, 1, 4),
        (1, 1, 2),
    ]
    assert "ghost-0" in run(scene, "counts", "--topic", GHOST).output


def test_the_live_screen_shows_a_real_cluster(scene):
    with Cluster(options_of(scene.kafka.bootstrap).answering_within(2_000)) as cluster:
        look = Look(cluster, topics=None, ledger_topics=None)
        app = Top(look, seconds=3_600, clock=time.time)

        async def watch():
            async with app.run_test(size=(110, 30)) as pilot:
                await app.workers.wait_for_complete()
                await pilot.pause()
                tables = {str(table.id): table for table in app.query(RowTable)}
                shown = {
                    name: [str(table.get_row_at(row)[0]) for row in range(table.row_count)]
                    for name, table in tables.items()
                }
                assert shown == {
                    "transactions": [OPEN, PREPARED],
                    "partitions": ["open-0", "ghost-0", "open-1", "prepared-1"],
                    "queries": [],
                }

        asyncio.run(watch())


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24), (48, 30)])
def test_the_live_screen_in_a_terminal_shows_whole_words_obeys_keys_and_leaves_the_terminal_as_it_was(
    scene, columns, rows
):
    command = [*KAFKA_EOS, "top", "--bootstrap-servers", scene.kafka.bootstrap]
    with terminal(command, columns=columns, rows=rows) as shown:
        shown.until("╭─ Open transactions: 2 ─", "╭─ Held partitions: 4 ─", "╭─ Queries: 0 ─")
        shown.until(f"│ {OPEN} ", f"│ {PREPARED} ", " q Quit  s Sort by next column")
        shown.keys(b" ")
        shown.until("paused")
        shown.keys(b"q")
        assert shown.end() == 0
    assert shown.written.rindex(ALTERNATE_SCREEN_LEFT) > shown.written.rindex(b"paused")


def test_the_commands_of_the_documentation_run(scene):
    shown = re.findall(r"^kafka-eos transactions (.+)$", (ROOT / "docs" / "transactions.md").read_text(), re.MULTILINE)
    assert {line.split()[0] for line in shown} == {"list", "describe", "hanging", "counts", "abort"}
    here = {"localhost:9092": scene.kafka.bootstrap, "orders-copy": OPEN, "orders": GHOST, "1200": "0"}
    for line in shown:
        done = CliRunner().invoke(transactions, [here.get(word, word) for word in shlex.split(line)])
        assert done.exit_code in (0, 1) and not isinstance(done.exception, Exception), (line, done.output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (part_of(OPEN, 0), "may still commit it in its other partitions"),
        (part_of(PREPARED, 1), "it is already decided (PrepareCommit)"),
        (part_of(GHOST, 0, at=1), "no open transaction of ghost-0 starts there; open ones start at 0"),
        ([OPEN], "its owner may be alive"),
        ([PREPARED, "--fence-owner"], "its transaction is already decided (PrepareCommit)"),
        ([DONE], "it has no open transaction (CompleteCommit)"),
        (["nobody"], "no coordinator knows the transactional id 'nobody'"),
    ],
)
def test_what_an_owner_or_a_coordinator_still_ends_is_not_aborted(scene, arguments, said):
    before = scene.survey(OPEN, GHOST, PREPARED, DONE)
    refused = run(scene, "abort", *arguments, "--yes")
    assert (refused.exit_code, said in refused.output, "Nothing was changed." in refused.output) == (1, True, True)
    after = scene.survey(OPEN, GHOST, PREPARED, DONE)
    assert (after.producers, after.listings) == (before.producers, before.listings)


def test_a_hanging_transaction_is_found_shown_and_aborted(scene, caplog):
    found = run(scene, "hanging")
    assert found.exit_code == 1, found.output
    command = "kafka-eos transactions abort --topic ghost --partition 0 --start-offset 0"
    assert command in " ".join(found.output.split())
    unknown = run(scene, "abort", *part_of(GHOST, 0), "--yes")
    assert isinstance(unknown.exception, ToolFailed), "the command line's exit code 3"
    assert "whether a query committed a batch in this transaction is not known" in unknown.exception.what
    ghost = [*part_of(GHOST, 0), "--ledger-topic", LEDGER_TOPIC]
    shown = run(scene, "abort", *ghost, "--dry-run")
    assert (shown.exit_code, "Would be aborted, because it hangs" in shown.output) == (0, True)
    assert run(scene, "abort", *ghost, answer="n\n").exit_code == 1
    assert [str(part.partition) for part in scene.survey(GHOST).hanging] == ["ghost-0"]

    done = run(scene, "abort", *ghost, answer="y\n")
    assert done.exit_code == 0, done.output
    after = scene.survey(GHOST)
    assert (after.open_parts, after.log_ends[TopicPartition(GHOST, 0)].lag) == ([], 0)
    assert "wrote an abort marker to ghost-0" in caplog.text
    assert run(scene, "hanging", "--topic", GHOST).exit_code == 0
    assert scene.kafkas("find-hanging", "--topic", GHOST, "--max-transaction-timeout", 0) == []


def test_what_hangs_under_the_epoch_of_a_live_owner_is_aborted_only_once_the_owner_is_fenced(scene):
    coordinator = owner_of(scene.cluster, "late")
    current = coordinator.init_producer_id()
    append(scene.cluster, replace(current, transaction_version=0), [TopicPartition(DONE, 1)])
    at = part_of(DONE, 1)
    refused = run(scene, "abort", *at, "--yes", "--json")
    assert (refused.exit_code, "still has its producer epoch" in json.loads(refused.stdout)["reason"]) == (1, True)

    assert run(scene, "abort", "late", "--fence-owner", "--yes").exit_code == 0
    done = run(scene, "abort", *at, "--ledger-topic", LEDGER_TOPIC, "--yes", "--json")
    assert (done.exit_code, json.loads(done.stdout)["done"]) == (0, True)
    assert scene.survey(DONE).open_parts == []


def test_a_transaction_is_taken_from_a_live_owner_only_if_told_to_and_the_owner_notices(scene, caplog):
    scene.markers.release()
    tp = TopicPartition(DONE, 0)
    owner = begun(scene.cluster, "alive", [tp])
    assert run(scene, "abort", "alive", "--yes").exit_code == 1
    assert run(scene, "abort", "alive", "--fence-owner", answer="n\n").exit_code == 1
    assert scene.survey(DONE).log_ends[tp].lag == 2
    done = run(scene, "abort", "alive", "--fence-owner", "--yes")
    assert done.exit_code == 0, done.output
    assert f"fences producer {owner.producer_id}, epoch {owner.epoch} (Ongoing)" in caplog.text
    assert scene.survey(DONE).log_ends[tp].lag == 0
    with pytest.raises(ProducerFenced):
        owner_of(scene.cluster, "alive").end(owner, commit=True)


def test_a_query_whose_transaction_is_aborted_ends_as_fenced_and_writes_the_batch_once_after_a_restart(scene):
    source, target = scene.kafka.create_topic("aborted-from", 2), scene.kafka.create_topic("aborted-to", 2)
    for partition in (0, 1):
        produce(scene.kafka.bootstrap, source, [b"x"] * 10, partition=partition)
    query, restarted = (Copy(scene.kafka.bootstrap, scene.cluster, source, target) for _ in range(2))
    name = query.options.transactional_id

    def aborted(stage: Stage) -> None:
        stage.run()
        done = run(scene, "abort", name, "--fence-owner", "--yes")
        assert done.exit_code == 0, done.output

    query.spark = aborted
    with pytest.raises(ProducerFenced):
        query.run(0, 0, 10)
    assert restarted.run(0, 0, 10).outcome == "committed"
    found = verify(scene.kafka.bootstrap, target, source=source, transactional_id=name, history=restarted.history)
    assert (found.holds, found.records) == (True, 20), found


def test_the_rights_on_the_page_are_enough_and_without_them_nothing_is_aborted(secured, tmp_path):
    out = secured.kafka.create_topic("operated", 1)
    holder = transact(secured.kafka.bootstrap, out, [b"x"] * 3, "leave open", transactional_id=out)
    looks = [Right("Describe", "transactional id", out), Right("Read", "topic", out)]
    finds = [*looks, Right("Describe", "transactional id", "*"), Right("Describe", "topic", "__transaction_state")]
    of_ledger = [Right("Read", "topic", LEDGER_TOPIC), Right("Describe", "group", f"{out}.ledger")]
    takes = [*looks, Right("Write", "transactional id", out)]

    def command(*words: str, rights: Sequence[Right]) -> Result:
        user = f"operator-{next(numbers)}"
        add_user(secured.kafka.bootstrap, user, "secret", rights)
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
        properties = tmp_path / user
        properties.write_text(
            f"bootstrap.servers={secured.kafka.bootstrap_of('SASL_PLAINTEXT')}\n"
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={login} username="{user}" password="secret";\n'
        )
        return CliRunner().invoke(app, ["transactions", *words, "--properties", str(properties), "--json"])

    (part,) = json.loads(command("describe", out, rights=looks).stdout)["partitions"]
    assert (part["topic"], part["held_offsets"], part["ending"]) == (out, 3, "ongoing")
    assert command("hanging", "--topic", out, rights=finds).exit_code == 0
    aborting = ("abort", out, "--fence-owner", "--yes")
    assert command(*aborting, rights=[*looks, *of_ledger]).exit_code == 3
    assert command(*aborting, rights=takes).exit_code == 3
    (part,) = json.loads(command("describe", out, rights=looks).stdout)["partitions"]
    assert part["ending"] == "ongoing", "nothing was changed"
    done = command(*aborting, rights=[*takes, *of_ledger])
    assert (done.exit_code, json.loads(done.stdout)["done"]) == (0, True)
    with pytest.raises(KafkaException):
        holder.commit_transaction(30)


def test_preflight_and_doctor_find_what_hangs_of_a_querys_buckets_and_how_it_ends(scene):
    target = scene.kafka.create_topic(f"written-{next(numbers)}", 2)
    bucket = owner_of(scene.cluster, f"{target}.bucket-0")
    late = replace(bucket.init_producer_id(), transaction_version=1)  # whose appends add no partition
    append(scene.cluster, late, [TopicPartition(target, 1)])
    given = ["--bootstrap-servers", scene.kafka.bootstrap, "--transactional-id", target, "--topic", target]

    def findings(command):
        done = CliRunner().invoke(app, [command, *given, "--real-time", "--json"])
        return {each["subject"]: each for each in json.loads(done.stdout)["findings"]}

    try:
        of_preflight, of_doctor = findings("preflight"), findings("doctor")
    finally:
        bucket.init_producer_id()  # fences the late one
        aborted = run(scene, "abort", *part_of(target, 1), "--ledger-topic", LEDGER_TOPIC, "--yes")
    hangs = of_preflight[f"open transaction in {target}-1"]
    assert hangs["meaning"] == of_doctor[f"open transaction in {target}-1"]["meaning"]
    assert hangs["severity"] == "warning"
    assert hangs["found"].startswith(f"of {target}.bucket-0 from offset 0 on, since ")
    assert hangs["action"] == "Start the query: it ends its own"
    assert of_preflight[f"buckets of {target}"]["found"] == "no open transaction in 1"
    assert aborted.exit_code == 0, aborted.output
    assert f"open transaction in {target}-1" not in findings("preflight")
