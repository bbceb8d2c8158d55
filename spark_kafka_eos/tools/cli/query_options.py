"""A query's options as a command takes them: by a flag, by `--option NAME=VALUE`, in a properties file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.options import ClientOptions, SinkOptions, from_properties, sink_options
from spark_kafka_eos.options.client import client_options
from spark_kafka_eos.options.table import SOURCE, parse_options

BootstrapServers = Annotated[str | None, typer.Option(help="Comma-separated list of brokers, host:port.")]
Properties = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="A client.properties file (TLS, SASL, timeouts).")
]
SourceBootstrapServers = Annotated[
    str | None, typer.Option(help="Brokers of the source's cluster, if it is another one.")
]
SourceProperties = Annotated[
    Path | None, typer.Option(exists=True, dir_okay=False, help="Like --properties, for the source's cluster.")
]

RealTime = Annotated[
    bool,
    typer.Option("--real-time", help="The query runs in real time: also the transactional ids of its buckets."),
]

# Short, because the commands are interactive; a file or an option may set it.
_PATIENCE = {"kafka.request.timeout.ms": "10000"}


class QueryOptions:
    """Options, and how each was given. A flag wins over `--option`, which wins over the file."""

    def __init__(
        self,
        flags: Mapping[str, tuple[str, str | None]],
        *,
        properties: Path | None = None,
        named: Mapping[str, str] | None = None,
    ) -> None:
        """`flags`: by option the flag that sets it, with its value; None if it was not given."""
        self._file = properties
        self._read = {} if properties is None else from_properties(properties)
        self._named = named or {}
        self._flags = {option.lower(): flag for option, (flag, _) in flags.items()}
        self._flag_values = {option: value for option, (_, value) in flags.items() if value is not None}

    @property
    def values(self) -> dict[str, str]:
        """By option its value, as text."""
        return {**_PATIENCE, **self._read, **self._named, **self._flag_values}

    def sink(self) -> SinkOptions:
        """What they are for a sink. Raises ConfigurationError."""
        with self.named_as_given():
            return sink_options(self.values)

    @contextmanager
    def named_as_given(self) -> Iterator[None]:
        """Let a ConfigurationError in this context name the option as the user gave it, or would give it."""
        try:
            yield
        except ConfigurationError as error:
            what = error.what.replace(f"option {error.option!r}", self._place(error.option), 1)
            raise error.replaced(what=what) from None

    def _place(self, option: str) -> str:
        flag_values, named, read = (_lowered(options) for options in (self._flag_values, self._named, self._read))
        lowered = option.lower()
        if lowered not in flag_values and lowered in named:
            return f"--option {option}"
        if lowered not in flag_values and lowered in read:
            return f"{self._file}, {option}"
        flag = self._flags.get(lowered)
        return f"option {option!r}" if flag is None else f"{flag} (option {option})"


def client_of(flag: str, bootstrap_servers: str | None, properties: Path | None) -> ClientOptions:
    """How to connect to a cluster of which the command takes only the brokers, by `flag`, and the properties."""
    query_options = QueryOptions({"kafka.bootstrap.servers": (flag, bootstrap_servers)}, properties=properties)
    with query_options.named_as_given():
        return client_options(parse_options(query_options.values, SOURCE))


def source_client_of(bootstrap_servers: str | None, properties: Path | None) -> ClientOptions | None:
    """How to connect to the source's cluster; None if it is not another one than the command's."""
    if bootstrap_servers is None and properties is None:
        return None
    return client_of("--source-bootstrap-servers", bootstrap_servers, properties)


def parse_pairs(texts: Sequence[str], flag: str = "--option", example: str = "topic=orders") -> Mapping[str, str]:
    """Parse `NAME=VALUE` texts as options, given by `flag`. Raises typer.BadParameter for anything else."""
    pairs = {text: text.partition("=") for text in texts}
    for text, (name, equals, _) in pairs.items():
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE. For example: {flag} {example}", param_hint=flag)
    return {name: value for name, _, value in pairs.values()}


def _lowered(names: Mapping[str, str]) -> set[str]:
    return {name.lower() for name in names}
