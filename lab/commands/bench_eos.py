"""`python -m lab bench eos`: KIP-609's EOSPerformance with its arguments, and ProducerPerformance's that apply."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from lab.bench.eos_performance import EosResult

_PROPERTY_OPTIONS = ("--consumer-props", "--producer-props")
# What this tool has by itself, whatever a command line for Java's clients says.
_GIVEN = {
    "kafka.auto.offset.reset",
    "kafka.enable.auto.commit",
    *(f"kafka.{part}.{what}" for part in ("key", "value") for what in ("serializer", "deserializer")),
}
_PROPERTIES = "NAME=VALUE, space-separated; can be repeated. Overrides the file."


def eos(
    input_topic: Annotated[str, typer.Option(help="Consume messages from this topic.")] = "",
    output_topic: Annotated[str, typer.Option(help="Produce messages to this topic.")] = "",
    num_records: Annotated[int, typer.Option(help="Number of messages to copy.", min=1)] = 500_000,
    throughput: Annotated[float, typer.Option(help="Approximate limit of messages per second; -1: no limit.")] = -1,
    consumer_config: Annotated[Path | None, typer.Option(help="Consumer config properties file.", exists=True)] = None,
    consumer_props: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=_PROPERTIES)] = None,
    consumer_group_id: Annotated[
        str, typer.Option(help="Consumer group to start from, and to commit offsets to.")
    ] = "performance-consumer-default-group-id",
    poll_timeout: Annotated[int, typer.Option(help="Milliseconds to wait for more input.", min=0)] = 100,
    pre_registration: Annotated[
        str, typer.Option(metavar="true|false", help="Whether to register all partitions at once.")
    ] = "false",
    producer_config: Annotated[
        Path | None, typer.Option("--producer.config", help="Producer config properties file.", exists=True)
    ] = None,
    producer_props: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=_PROPERTIES)] = None,
    transactional_id: Annotated[str, typer.Option(help="Default: a generated name.")] = "",
    transaction_duration_ms: Annotated[int, typer.Option(help="Length of a transaction, in milliseconds.", min=1)] = 50,
    print_metrics: Annotated[
        bool, typer.Option("--print-metrics", help="Print metrics at the end of the test.")
    ] = False,
    runs: Annotated[int, typer.Option(help="With embedded brokers: measured runs of each.", min=1)] = 7,
    transactions: Annotated[int, typer.Option(help="With embedded brokers: transactions of a run.", min=1)] = 200,
    partitions: Annotated[
        str, typer.Option(help="With embedded brokers: comma-separated list of output partitions.")
    ] = "64,256",
    add: Annotated[bool, typer.Option("--add", help="Add to the results in the file of --output.")] = False,
    output: Annotated[Path | None, typer.Option(help="Write the results to this JSON file.", dir_okay=False)] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG to this file.")] = None,
) -> None:
    """Poll, process and produce exactly-once: KIP-609's EOSPerformance.

    Without bootstrap.servers, it runs with and without pre-registration on two embedded brokers, one with each
    transaction protocol, with one poll of 2,000 messages in a transaction.
    """
    from lab.bench.eos_performance import EosSettings, eos_performance
    from lab.bench.show import bars
    from spark_kafka_eos.options import from_properties

    producer = (from_properties(producer_config) if producer_config else {}) | properties(producer_props or [])
    consumer = (from_properties(consumer_config) if consumer_config else {}) | properties(consumer_props or [])
    if not any("bootstrap.servers" in name for name in producer | consumer):
        if add and (output is None or not output.exists()):
            raise typer.BadParameter("needs --output with an existing file", param_hint="--add")
        _embedded(numbers(partitions, "--partitions"), transactions, runs, output, plot, add=add)
        return
    if not input_topic or not output_topic:
        missing = "--output-topic" if input_topic else "--input-topic"
        raise typer.BadParameter("is required with bootstrap.servers", param_hint=missing)
    brokers = {name: value for name, value in (consumer | producer).items() if "bootstrap.servers" in name}
    polled = int(consumer.pop("kafka.max.poll.records", "500"))
    consumer = {name: value for name, value in consumer.items() if name not in _GIVEN} | {
        "startingOffsets": consumer.get("kafka.auto.offset.reset", "earliest")
    }
    producer = {name: value for name, value in producer.items() if name not in _GIVEN}
    with bars() as show:
        result = eos_performance(
            EosSettings(
                input_topic=input_topic,
                output_topic=output_topic,
                num_records=num_records,
                consumer=brokers | consumer,
                producer=brokers | producer,
                consumer_group_id=consumer_group_id,
                transactional_id=transactional_id or f"performance-producer-{uuid.uuid4()}",
                transaction_duration_ms=transaction_duration_ms,
                throughput=throughput,
                poll_timeout_ms=poll_timeout,
                max_poll_records=polled,
                pre_registration=truth(pre_registration),
            ),
            show,
        )
    _print(result)
    if print_metrics:
        print(*result.requests.lines(), sep="\n")


class JavaArguments(TyperCommand):
    """Takes several values after an option for properties, as the argument parser of Kafka's tools does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, one_value_each(args))


def one_value_each(args: Iterable[str]) -> list[str]:
    """`--producer-props a=1 b=2` as `--producer-props a=1 --producer-props b=2`."""
    spread: list[str] = []
    option = ""
    for arg in args:
        if arg.startswith("-"):
            option = arg if arg in _PROPERTY_OPTIONS else ""
        elif option and spread[-1] != option:
            spread.append(option)
        spread.append(arg)
    return spread


def properties(texts: list[str]) -> dict[str, str]:
    """`["a=1 b=2", "c=3"]` with the prefix `kafka.`. Raises typer.BadParameter for an item without `=`."""
    pairs = [pair for text in texts for pair in text.split()]
    for pair in pairs:
        if "=" not in pair:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE")
    named = (pair.split("=", 1) for pair in pairs)
    return {name if name.startswith("kafka.") else f"kafka.{name}": value for name, value in named}


def truth(text: str) -> bool:
    """`true` or `false`. Raises typer.BadParameter for anything else."""
    if text.lower() not in ("true", "false"):
        raise typer.BadParameter(f"must be true or false, not {text!r}", param_hint="--pre-registration")
    return text.lower() == "true"


def numbers(text: str, flag: str) -> list[int]:
    """`1,2,3`. Raises typer.BadParameter for anything else."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise typer.BadParameter(f"{text!r} is not a comma-separated list of numbers", param_hint=flag)
    return [int(number) for number in text.split(",")]


def _embedded(
    partitions: list[int], transactions: int, runs: int, output: Path | None, plot: Path | None, *, add: bool
) -> None:
    from lab.bench import plots, show, store
    from lab.bench.eos_runs import added, both_protocols, compare_registration
    from lab.bench.figures import Sweep
    from lab.bench.machine import machine

    here = machine()
    with show.bars() as bar, both_protocols(bar) as labs:
        sweep = compare_registration(labs, _print, transactions=transactions, runs=runs, partitions=partitions)
    if add and output is not None:
        before, _ = store.read(output)
        assert isinstance(before, Sweep)
        sweep = added(before, sweep)
    here = here.running(sweep.settings["kafka"])
    show.console().print(show.sweep(sweep))
    show.console().print(str(here))
    if output is not None:
        store.write(output, sweep, here)
    if plot is not None:
        plots.plot(sweep, plot)


def _print(result: EosResult) -> None:
    with_or_without = "with" if result.pre_registration else "without"
    whole, commits = result.transactions, result.commits
    print(result)
    print(
        f"  {with_or_without} pre-registration; {whole.count} transactions of {whole.median:.2f} ms 50th, with "
        f"{result.requests.count('AddPartitionsToTxn')} AddPartitionsToTxn; commit {commits.mean:.2f} ms avg, "
        f"{commits.maximum:.2f} ms max, {commits.median:.2f} ms 50th"
    )
