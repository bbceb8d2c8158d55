"""`kafka-eos demo`: late departures from New York, exactly once, though the driver is killed in the middle of batches.

An embedded broker, an input of which a tenth of the transactions is aborted, a streaming job (`jobs/flight_delays.py`)
that dies by SIGKILL at chosen points and is started again, and a comparison of its output with the data set itself.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from rich.console import Console

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.tools.demo_check import Comparison, Figure, Survey, compare, figures
from spark_kafka_eos.tools.demo_screen import Screen, table
from spark_kafka_eos.tools.driver import Driver, Kill, batch_in_flight, committed_batches, python_environment
from spark_kafka_eos.tools.embedded import EmbeddedKafka
from spark_kafka_eos.tools.flights import late_flights, read_airlines, read_flights
from spark_kafka_eos.tools.flights_producer import produce
from spark_kafka_eos.tools.read_topic import read_topic

INPUT, OUTPUT = "flights", "flights-delayed"
TRANSACTIONAL_ID = "flight-delays"
JOB = Path(__file__).parents[2] / "jobs" / "flight_delays.py"

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
}
_PATIENCE = 180.0  # seconds for a driver to reach its failpoint, or the end, on a slow machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is sent and where the driver dies. `month` None is the whole year."""

    month: int | None
    flights_per_transaction: int
    offsets_per_trigger: int
    kills: tuple[Kill, ...]


FULL = Plan(
    month=None,
    flights_per_transaction=2_000,
    offsets_per_trigger=20_000,
    kills=(
        Kill(point="half appended", batch=3),
        Kill(point="offsets committed", batch=8),
        Kill(point="ended", batch=13),
    ),
)
FAST = Plan(
    month=1,
    flights_per_transaction=500,
    offsets_per_trigger=5_000,
    kills=(Kill(point="half appended", batch=1), Kill(point="offsets committed", batch=3)),
)


def run(*, fast: bool, kafka_version: str, append_mode: str, keep: bool, console: Console) -> bool:
    """Whether every figure holds. With `keep` the checkpoint and the driver's log stay, in a folder that is named."""
    if not JOB.exists():
        raise ToolFailed(f"the job {JOB} is missing", action="Run the demo from a source checkout.")
    folder = Path(tempfile.mkdtemp(prefix="kafka-eos-demo-"))
    try:
        with Screen(console) as screen, EmbeddedKafka(version=kafka_version) as kafka:
            screen.say(f"Apache Kafka {kafka_version} answers at {kafka.bootstrap}")
            kafka.create_topic(INPUT, partitions=4)
            kafka.create_topic(OUTPUT, partitions=3)
            shown = _rehearse(FAST if fast else FULL, kafka.bootstrap, append_mode, folder, screen)
    finally:
        if not keep:
            shutil.rmtree(folder)
    console.print(table(shown))
    if keep:
        console.print(f"Checkpoint and driver's log: {folder}", soft_wrap=True)
    return all(figure.holds for figure in shown)


def _rehearse(plan: Plan, bootstrap: str, append_mode: str, folder: Path, screen: Screen) -> list[Figure]:
    flights = read_flights(plan.month)
    expected = late_flights(flights, read_airlines())
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    screen.expect_flights(len(flights))
    sent = produce(
        bootstrap, INPUT, flights, size=plan.flights_per_transaction, progress=lambda sent: screen.sent(sent.committed)
    )
    screen.say(f"{sent.committed:,} departures sent; {sent.aborted:,} copies more in transactions that were aborted")

    survived = _drive(plan, bootstrap, append_mode, folder, screen)
    screen.say("reading what came out, with librdkafka's consumer")
    return figures(
        flights=len(flights),
        late=len(expected),
        aborted_sent=sent.aborted,
        kills=len(plan.kills),
        survived=survived,
        survey=survey(bootstrap, admin, expected),
    )


def _drive(plan: Plan, bootstrap: str, append_mode: str, folder: Path, screen: Screen) -> int:
    """Run the job to the end of the input, killing it on the way; how many of the batches cut short were done after."""
    checkpoint = folder / "checkpoint"
    arguments = ["--bootstrap-servers", bootstrap, "--checkpoint", str(checkpoint), "--available-now"]
    arguments += ["--from", INPUT, "--to", OUTPUT, "--transactional-id", TRANSACTIONAL_ID]
    arguments += ["--append-mode", append_mode, "--max-offsets-per-trigger", str(plan.offsets_per_trigger)]
    conf = ["--master", "local[2]", *(part for key, value in _SPARK.items() for part in ("--conf", f"{key}={value}"))]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    offsets = sum(_ends(admin, INPUT, IsolationLevel.READ_COMMITTED).values())
    screen.expect_batches(-(-offsets // plan.offsets_per_trigger))

    def look() -> None:
        screen.committed(committed_batches(checkpoint))

    def start(environment: Mapping[str, str]) -> Driver:
        env = python_environment() | dict(environment)
        return Driver(JOB, arguments, conf=conf, env=env, log=folder / "driver.log")

    for number, kill in enumerate(plan.kills, start=1):
        point = folder / f"kill-{number}"
        point.mkdir()

        def reached(file: Path = point / "reached") -> bool:
            look()
            return file.exists()

        with start(kill.environment(point)) as driver:
            screen.say(f"driver {number} (pid {driver.pid}) runs; it dies in batch {kill.batch}, at {kill.point!r}")
            driver.wait_until(reached, timeout=_PATIENCE)
            processes = driver.kill()
        screen.killed(f"SIGKILL to {processes} processes {_evidence(admin, checkpoint, kill)}")
    with start({}) as driver:
        screen.say(f"driver {len(plan.kills) + 1} (pid {driver.pid}) runs to the end")
        driver.wait(look, timeout=_PATIENCE)
    return sum(committed_batches(checkpoint) > kill.batch for kill in plan.kills)


def _evidence(admin: AdminClient, checkpoint: Path, kill: Kill) -> str:
    """What shows that the driver died in the middle of the batch: the checkpoint, and what hangs in Kafka's log."""
    batch = batch_in_flight(checkpoint)
    if batch != kill.batch:
        raise ToolFailed(f"the driver was to die in batch {kill.batch}, but the checkpoint says {batch}")
    ends = _ends(admin, OUTPUT, IsolationLevel.READ_UNCOMMITTED)
    stable = _ends(admin, OUTPUT, IsolationLevel.READ_COMMITTED)
    hidden = sum(ends.values()) - sum(stable.values())
    return f"in batch {batch} (planned, not done): {hidden:,} offsets of {OUTPUT} hang in an open transaction"


def survey(bootstrap: str, admin: AdminClient, expected: Mapping[int, Mapping[str, object]]) -> Survey:
    """Read input and output to their ends, as a read_committed and as a read_uncommitted consumer."""
    done = _group_offsets(admin, TRANSACTIONAL_ID, INPUT)
    read = visible = 0
    for message in read_topic(bootstrap, INPUT, "read_committed"):
        visible += bool(_value(message)["aborted"])
        read += (message.offset() or 0) < done.get(message.partition() or 0, 0)
    output: Comparison = compare(expected, _records(read_topic(bootstrap, OUTPUT, "read_committed")))
    return Survey(
        flights_read=read,
        input_aborted_visible=visible,
        input_aborted_uncommitted=sum(
            bool(_value(message)["aborted"]) for message in read_topic(bootstrap, INPUT, "read_uncommitted")
        ),
        output=output,
        output_uncommitted=sum(1 for _ in read_topic(bootstrap, OUTPUT, "read_uncommitted")),
    )


def _records(messages: Iterator[Message]) -> Iterator[tuple[str, dict[str, object]]]:
    for message in messages:
        yield bytes(message.key() or b"").decode(), _value(message)


def _value(message: Message) -> dict[str, object]:
    value: dict[str, object] = json.loads(message.value() or b"{}")
    return value


def _ends(admin: AdminClient, topic: str, isolation: IsolationLevel) -> dict[int, int]:
    """End of each partition: its last stable offset (READ_COMMITTED) or high watermark."""
    partitions = [TopicPartition(topic, number) for number in admin.list_topics(topic).topics[topic].partitions]
    asked = {partition: OffsetSpec.latest() for partition in partitions}
    answers = admin.list_offsets(asked, isolation_level=isolation)
    return {partition.partition: answer.result().offset for partition, answer in answers.items()}


def _group_offsets(admin: AdminClient, group: str, topic: str) -> dict[int, int]:
    """By partition, the offset that the job's transactions committed for `topic`."""
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {tp.partition: tp.offset for tp in answer.topic_partitions if tp.topic == topic}
