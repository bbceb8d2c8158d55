"""The commands that inject faults: into requests, processes, histories and bytes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lab.commands.dead_letters import dead_letters
from lab.commands.explore import explore
from lab.commands.fuzz import fuzz
from lab.commands.lost_checkpoints import lost_checkpoints
from lab.commands.simulate import simulate
from lab.commands.soak import soak
from lab.replay import LIBRDKAFKA, Outcome, replay
from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.testing import jars
from spark_kafka_eos.testing.embedded import EmbeddedKafka
from spark_kafka_eos.testing.proxy import Passed, Proxy
from spark_kafka_eos.testing.proxy_rules import parse_rule
from spark_kafka_eos.tools.cli.errors import FAILED

chaos = typer.Typer(help="Inject faults.", no_args_is_help=True)


chaos.command()(explore)
chaos.command()(fuzz)


chaos.command("dead-letters")(dead_letters)
chaos.command("lost-checkpoints")(lost_checkpoints)
chaos.command()(simulate)
chaos.command()(soak)


@chaos.command()
def proxy(
    bootstrap_servers: Annotated[str, typer.Option(help="Comma-separated list of brokers, host:port; plaintext only.")],
    rule: Annotated[list[str] | None, typer.Option(metavar="RULE", help="API:COUNT:ACTION; can be repeated.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show every request, not only those that match a rule.")
    ] = False,
) -> None:
    """Run a proxy between clients and a Kafka cluster that injects faults into selected requests, until Ctrl-C.

    It prints one line to standard output, the bootstrap servers for the clients, and logs events to standard error.

    A rule is API:ACTION, API:COUNT:ACTION or API@CLIENT:COUNT:ACTION. API is Kafka's name of a request (EndTxn,
    Produce, …) or *. CLIENT is a pattern for the client.id. COUNT selects the third such request (3), the second to the
    fourth (2-4), all from the second on (2-), or all (*); default: the first. The actions:

    \b
    drop-request      the request never reaches the broker; the connection stays open
    drop-response     the request is applied, but its response is dropped
    cut-request       the connection is closed instead of sending the request
    cut-response      the request is applied, then the connection is closed
    delay=SECONDS     the request arrives late, even if the client has given up
    hold              the request is held until Ctrl-C
    duplicate         the request arrives twice, on two connections
    error=CODE        returns this error (number or name); the request never reaches the broker
    error-after=CODE  the request is applied, and this error is returned

    For example: --rule EndTxn:1:drop-response --rule 'Produce@driver*:2-:error=NOT_LEADER_OR_FOLLOWER'
    """
    try:
        rules = [parse_rule(text) for text in rule or []]
    except ToolFailed as error:
        raise typer.BadParameter(str(error), param_hint="--rule") from None
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    started = time.monotonic()

    def show(passed: Passed) -> None:
        if passed.rule is not None or verbose:
            notes.print(line(passed, time.monotonic() - started))

    signal.signal(signal.SIGTERM, _interrupt)  # so that `kill` also stops it cleanly
    with Proxy(bootstrap_servers, rules, on_request=show) as running:
        try:
            print(running.bootstrap, flush=True)
            notes.print("Set this as the clients' bootstrap.servers. Press Ctrl-C to stop.")
            threading.Event().wait()
        except KeyboardInterrupt:
            if rules:
                notes.print(summary(running))


@chaos.command("replay-17754")
def replay_17754(
    kafka_version: Annotated[str, typer.Option(help="Kafka version; downloaded once.")] = jars.DEFAULT_VERSION,
) -> None:
    """Replay KAFKA-17754: an EndTxn that the network delays into the next transaction ends that one early.

    Runs librdkafka and the connector on a broker with the protocol before KIP-890, and prints what a consumer with
    read_committed sees of each. The exit code is 1 if the connector's transaction is torn.
    """
    newer = int(kafka_version.split(".")[0]) >= 4  # before, there is no other protocol to choose
    with EmbeddedKafka(kafka_version, transaction_version=1 if newer else None) as kafka:
        outcomes = list(replay(kafka))
    Console(highlight=False).print(outcome_table(outcomes))
    if any(outcome.torn and outcome.client != LIBRDKAFKA for outcome in outcomes):
        raise typer.Exit(FAILED)


def outcome_table(outcomes: Iterable[Outcome]) -> Table:
    """What each client's application did, what should be visible, and what is."""
    table = Table("client", "ends of its transactions", "should be visible", "is visible", "transaction 2")
    for outcome in outcomes:
        expected, seen = (", ".join(sorted(values)) for values in (outcome.case.expected, outcome.seen))
        torn = Text("torn", "bold red") if outcome.torn else Text("whole", "green")
        table.add_row(outcome.client, str(outcome.case), expected, seen, torn)
    return table


def line(passed: Passed, seconds: float) -> Text:
    """One request: time, client, broker, and what is done with it."""
    request = passed.request
    text = f"{seconds:8.3f} s  {request.client or '-'} → broker {passed.node}: {request.api} v{request.version}"
    if passed.rule is None:
        return Text(text, "dim")
    return Text.assemble(text, "  ", (str(passed.rule), "bold yellow"))


def summary(proxy: Proxy) -> Table:
    """How often each rule's requests were seen, and its action was applied."""
    table = Table("rule", "seen", "fired")
    for fault in proxy.faults:
        table.add_row(Text(str(fault.rule)), str(fault.seen), str(fault.fired))
    return table


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
