"""`kafka-eos chaos`: faults on purpose, to see what an application makes of them."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_kafka_eos.lab.commands.fuzz import fuzz
from spark_kafka_eos.lab.commands.simulate import simulate
from spark_kafka_eos.lab.commands.soak import soak
from spark_kafka_eos.testing.proxy import Passed, Proxy
from spark_kafka_eos.testing.proxy_rules import parse_rule

chaos = typer.Typer(help="Make things go wrong on purpose.", no_args_is_help=True)


chaos.command()(fuzz)


@chaos.callback()
def _chaos() -> None:
    """Make things go wrong on purpose."""


chaos.command()(simulate)
chaos.command()(soak)


@chaos.command()
def proxy(
    bootstrap: Annotated[str, typer.Option(metavar="HOST:PORT,…", help="Brokers of the cluster; plaintext only.")],
    rule: Annotated[list[str] | None, typer.Option(metavar="RULE", help="API:COUNT:ACTION; may be repeated.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every request, not only what meets a rule.")] = False,
) -> None:
    """Stand between clients and a Kafka cluster and let chosen requests meet chosen faults, until Ctrl-C.

    Standard output has one line, the bootstrap servers to give to the clients; what happens is shown on standard error.

    A rule is API:ACTION, API:COUNT:ACTION or API@CLIENT:COUNT:ACTION. API is Kafka's name of a request (EndTxn,
    Produce, …) or *; CLIENT a pattern for the client.id; COUNT the third such request (3), the second to the fourth
    (2-4), all from the second on (2-), or all (*); by default the first. The actions:

    \b
    drop-request      never reaches the broker, and nobody hangs up
    drop-response     applied, but the answer never arrives
    cut-request       the connection is closed in the request's place
    cut-response      applied, then the connection is closed in the answer's place
    delay=SECONDS     arrives late, even if the client has given up
    hold              never arrives, until Ctrl-C
    duplicate         arrives twice, on two connections
    error=CODE        answered with this error (number or name), never reaches the broker
    error-after=CODE  applied, and answered with this error

    For example: --rule EndTxn:1:drop-response --rule 'Produce@driver*:2-:error=NOT_LEADER_OR_FOLLOWER'
    """
    rules = [parse_rule(text) for text in rule or []]
    notes = Console(stderr=True, highlight=False, soft_wrap=True)
    started = time.monotonic()

    def show(passed: Passed) -> None:
        if passed.rule is not None or verbose:
            notes.print(line(passed, time.monotonic() - started))

    signal.signal(signal.SIGTERM, _interrupt)  # a clean end for `kill` too
    with Proxy(bootstrap, rules, on_request=show) as running:
        try:
            print(running.bootstrap, flush=True)
            notes.print("Clients use it as their bootstrap.servers. Ctrl-C ends it.")
            threading.Event().wait()
        except KeyboardInterrupt:
            if rules:
                notes.print(summary(running))


def line(passed: Passed, seconds: float) -> Text:
    """One request: when, whose, of which broker, and what becomes of it."""
    request = passed.request
    text = f"{seconds:8.3f} s  {request.client or '-'} → broker {passed.node}: {request.api} v{request.version}"
    if passed.rule is None:
        return Text(text, "dim")
    return Text.assemble(text, "  ", (str(passed.rule), "bold yellow"))


def summary(proxy: Proxy) -> Table:
    """How often each rule's requests were seen, and met its action."""
    table = Table("rule", "seen", "fired")
    for fault in proxy.faults:
        table.add_row(Text(str(fault.rule)), str(fault.seen), str(fault.fired))
    return table


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
