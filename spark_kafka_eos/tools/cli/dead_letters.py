"""`kafka-eos dead-letters`: what a query has put aside, by cause, and the way back."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.partitions import OffsetRange
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.options import sink_options
from spark_kafka_eos.tools.cli.bars import Bars
from spark_kafka_eos.tools.cli.errors import FAILED, confirmed
from spark_kafka_eos.tools.cli.query_options import BootstrapServers, Properties, QueryOptions, client_of, parse_pairs
from spark_kafka_eos.tools.cli.shown import AsJsonOnce, moment, size
from spark_kafka_eos.tools.cli.terminal import Console, Text
from spark_kafka_eos.tools.replay.plan import Stream
from spark_kafka_eos.tools.replay.send import ReplayPlan, plan, require_named, run
from spark_kafka_eos.tools.replay.stored import ReadProgress, StoredLetter, letters, ranges_of

dead_letters = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Show the records that queries have put aside, and send them back exactly once.",
)

_LONGEST = 200  # characters of a key or value in the table

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The query's deadLetterTopic.")]
Causes = Annotated[list[str] | None, typer.Option("--cause", help="Only those with this cause; can be repeated.")]
Since = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="TIME",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"],
        help="Only those that were put aside then or later: 2026-01-31 or 2026-01-31T12:00:00, in UTC.",
    ),
]


# -- the commands


@dead_letters.command()
def show(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    cause: Causes = None,
    since: Since = None,
    limit: Annotated[int, typer.Option(min=1, help="How many to show: the newest.")] = 20,
    values: Annotated[
        bool, typer.Option("--values", help="Also show keys and values. They may be personal data.")
    ] = False,
    as_json: AsJsonOnce = False,
) -> None:
    """Show the newest dead letters of a topic, the newest last.

    from: the record that was put aside. put aside: the time in UTC. size: of its key and value.
    """
    total = 0

    def counted() -> Iterator[StoredLetter]:
        nonlocal total
        for letter in _letters(topic, bootstrap_servers, properties, cause, since):
            total += 1
            yield letter

    selected = heapq.nlargest(limit, counted(), key=lambda letter: (letter.timestamp, letter.partition, letter.offset))
    newest = selected[::-1]
    if as_json:
        print(json.dumps([to_json(letter, values=values) for letter in newest], indent=1))
    else:
        Console(highlight=False).print(listing(newest, total, values=values))


@dead_letters.command()
def count(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    cause: Causes = None,
    since: Since = None,
    as_json: AsJsonOnce = False,
) -> None:
    """Count the dead letters of a topic by cause, topic of the record, and query."""
    rows = tally(_letters(topic, bootstrap_servers, properties, cause, since))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        Console(highlight=False).print(counts(rows))


@dead_letters.command("replay")
def replay_(
    topic: Topic,
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    cause: Causes = None,
    to: Annotated[
        str | None,
        typer.Option(help="Send all of them to this topic. Default: each to where it came from, or could not go."),
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="A topic that they may return to; can be repeated. Needed unless --to names one, or the query's "
            "ledgerKey signed them: headers say where they go, and anybody may write those.",
        ),
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option(help="Its ledgers say what was sent. Another one starts anew. Default: TOPIC.replay"),
    ] = None,
    max_replays: Annotated[int, typer.Option(min=1, help="Leave those that were sent back as often as this.")] = 2,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Any other option of the sink, such as ledgerTopic; can be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJsonOnce = False,
) -> None:
    """Send dead letters back, each exactly once, also if this command is killed and run again.

    They lose their error headers and get the header __kafka_eos.replays: how often they were sent back. Those that are
    put aside again while it runs wait for the next replay.

    \b
    Exit code 0: all of them were sent, now or before; with --dry-run: they would be
              1: some were left: sent back too often, not signed, or perhaps sent with another key
              2: the command line is wrong
              3: it could not be done, or not completely; run it again to continue
    """
    brokers = {"kafka.bootstrap.servers": ("--bootstrap-servers", bootstrap_servers)}
    query_options = QueryOptions(brokers, properties=properties, named=parse_pairs(option or []))
    own = transactional_id or f"{topic}.replay"
    with query_options.named_as_given():
        client = sink_options({**query_options.values, "kafka.transactional.id": own}).client
    with Cluster(client) as cluster:
        with Bars() as bars:
            ranges = ranges_of(cluster, topic)
            reading = _bar(bars, "reading", sum(offset_range.size for offset_range in ranges))
            planned = plan(
                cluster,
                topic,
                query_options.values,
                own,
                causes=cause or (),
                to=to,
                named=destination or (),
                max_replays=max_replays,
                progress=reading,
                ranges=ranges,
            )
        sends = bool(planned.records) and not dry_run
        if sends:
            require_named(planned, [*(destination or ()), *([to] if to else [])])
        if sends and not yes:
            Console(stderr=True, highlight=False).print(parts(planned))
            if not confirmed("Send them?"):
                raise ToolFailed("nobody confirmed it", action="Nothing was sent. --yes sends them without a question.")
        sent = None if dry_run else 0
        if sends:
            with Bars() as bars:
                sent = run(cluster, planned, to, _bar(bars, "sending", planned.records))
    if as_json:
        print(json.dumps(plan_json(planned, sent=sent), indent=1))
    else:
        table = [parts(planned)] if planned.parts or planned.skipped else []
        Console(highlight=False).print(Group(*table, Text(said(planned, sent=sent))))
    if planned.skipped:
        raise typer.Exit(FAILED)


# -- reading


def _letters(
    topic: str,
    bootstrap_servers: str | None,
    properties: Path | None,
    causes: Sequence[str] | None,
    since: datetime | None,
) -> Iterator[StoredLetter]:
    """The dead letters that the options select, with a bar for what is read."""
    start = None if since is None else int(since.replace(tzinfo=UTC).timestamp() * 1000)
    with Cluster(client_of("--bootstrap-servers", bootstrap_servers, properties)) as cluster, Bars() as bars:
        for stored in read_with_bar(cluster, ranges_of(cluster, topic, start), bars):
            if (not causes or stored.letter.cause in causes) and (start is None or stored.timestamp >= start):
                yield stored


def read_with_bar(cluster: Cluster, ranges: Sequence[OffsetRange], bars: Bars) -> Iterator[StoredLetter]:
    """The dead letters in `ranges`."""
    yield from letters(cluster, ranges, _bar(bars, "reading", sum(offset_range.size for offset_range in ranges)))


def _bar(bars: Bars, what: str, total: int) -> ReadProgress:
    """Counts what is done since, on a bar."""
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        bars.show(what, done, total)

    return progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """The dead letters of one cause, topic and query: how many, the bytes of keys and values, the first and the last
    time (ms since 1970).
    """

    cause: str
    topic: str | None
    query_id: str | None
    records: int
    bytes: int
    first: int
    last: int


def tally(stored_letters: Iterator[StoredLetter]) -> list[Counted]:
    """One row for each cause, topic and query, the most frequent first."""
    groups: dict[tuple[str, str | None, str | None], list[int]] = {}
    for stored in stored_letters:
        letter, time = stored.letter, stored.timestamp
        row = groups.setdefault((letter.cause, letter.topic, letter.query_id), [0, 0, time, time])
        row[:] = row[0] + 1, row[1] + stored.size, min(row[2], time), max(row[3], time)
    rows = [
        Counted(cause=cause, topic=topic, query_id=query, records=row[0], bytes=row[1], first=row[2], last=row[3])
        for (cause, topic, query), row in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.records, row.cause, row.topic or "", row.query_id or ""))


# -- showing


def listing(newest: Sequence[StoredLetter], total: int, *, values: bool) -> RenderableType:
    """One row per dead letter; with `values`, its key and value below."""
    table = Table(*(Column(name, overflow="fold") for name in ("cause", "from", "put aside", "size", "message")))
    for stored in newest:
        letter = stored.letter
        where = "unknown" if letter.topic is None else f"{letter.topic}-{letter.partition}@{letter.offset}"
        message = letter.message or ""
        if letter.output_topic is not None:
            message = f"{message} (to {letter.output_topic})".lstrip()
        if values:
            message += f"\nkey: {_text(stored.key)}\nvalue: {_text(stored.value)}"
        cells = letter.cause, where, moment(stored.timestamp), size(stored.size), message
        table.add_row(*map(Text, cells), end_section=values)
    summary = f"Dead letters: {total:,}" + (f", shown: the newest {len(newest):,}." if total > len(newest) else ".")
    return Group(table, Text(summary))


def counts(rows: Sequence[Counted]) -> RenderableType:
    """One row for each cause, topic and query, and their sum."""
    table = Table(
        *(Column(name, overflow="fold") for name in ("cause", "topic", "query")),
        *(Column(name, justify="right", overflow="fold") for name in ("records", "size")),
        Column("last", overflow="fold"),
    )
    for row in rows:
        named = (text or "unknown" for text in (row.cause, row.topic, row.query_id))
        numbers = f"{row.records:,}", size(row.bytes), moment(row.last)
        table.add_row(*map(Text, (*named, *numbers)))
    return Group(table, Text(f"Dead letters: {sum(row.records for row in rows):,}."))


def parts(planned: ReplayPlan) -> Table:
    """What a replay sends, by stream and topic, and what it leaves."""
    table = Table(
        *(Column(name, overflow="fold") for name in ("cause", "sent back before", "to")),
        Column("records", justify="right"),
    )
    for part in planned.parts:
        for topic, records in sorted(part.targets.items()):
            table.add_row(*map(Text, (*_stream(part.stream), topic, f"{records:,}")))
    for stream, records in sorted(planned.skipped.items()):
        table.add_row(*map(Text, (*_stream(stream), "left", f"{records:,}")))
    return table


def _stream(stream: Stream) -> tuple[str, str]:
    before = "never" if stream.replays == 0 else "once" if stream.replays == 1 else f"{stream.replays} times"
    return stream.cause, before


def said(planned: ReplayPlan, *, sent: int | None) -> str:
    """How a replay ended that sent so many records, or would have (None), in a sentence or two."""
    if sent is None:
        text = f"Dead letters that would be sent back: {planned.records:,}."
    else:
        text = f"Dead letters sent back: {sent:,}."
        if sent < planned.records:
            text += f" Not sent again, because the ledger has them: {planned.records - sent:,}."
    if number := planned.left_as("replayed"):
        text += f" Left, because they came back each time: {number:,}. A larger --max-replays sends them again."
    if number := planned.left_as("unsigned"):
        text += (
            f" Left, because they are not signed with ledgerKey: {number:,}. Look at them; "
            "--destination or --to sends them."
        )
    if number := planned.left_as("other key"):
        text += (
            f" Left, because a replay with another ledgerKey may have sent them: {number:,}. Give that key, "
            "too: --option ledgerKey=NEW,OLD."
        )
    if number := planned.left_as("earlier version"):
        text += f" Left, because a replay of an earlier version may have sent them: {number:,}. Look at them."
    return text


def plan_json(planned: ReplayPlan, *, sent: int | None) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "sent": bool(sent),
        "records": planned.records if sent is None else sent,
        "parts": [{**_stream_json(part.stream), "to": dict(part.targets)} for part in planned.parts],
        "left": [{**_stream_json(stream), "records": records} for stream, records in sorted(planned.skipped.items())],
    }


def _stream_json(stream: Stream) -> dict[str, Any]:
    return {"cause": stream.cause, "replays": stream.replays, "signed": bool(stream.key)}


def to_json(stored: StoredLetter, *, values: bool) -> dict[str, Any]:
    """A dead letter as plain values; with `values` also its key and value, in Base64."""
    fields: dict[str, Any] = {
        "partition": stored.partition.partition,
        "offset": stored.offset,
        "timestamp": stored.timestamp,
    }
    fields |= {"size": stored.size, "error": asdict(stored.letter)}
    if values:
        content = {"key": stored.key, "value": stored.value}
        fields |= {k: None if v is None else base64.b64encode(v).decode() for k, v in content.items()}
    return fields


def _text(content: bytes | None) -> str:
    """The beginning of a key or value: as text if it is UTF-8, else in hexadecimal."""
    if content is None:
        return "null"
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    readable = text if text and text.isprintable() else f"0x{content.hex()}" if content else "empty"
    return readable if len(readable) <= _LONGEST else f"{readable[:_LONGEST]}…"
