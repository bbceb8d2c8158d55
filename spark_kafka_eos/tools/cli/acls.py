"""`kafka-eos preflight --print-acls`: the commands that grant a query what it needs. No broker is asked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import typer

from spark_kafka_eos.kafka.words import printable
from spark_kafka_eos.options import ClientOptions, SinkOptions
from spark_kafka_eos.preflight import rights
from spark_kafka_eos.preflight.rights import Right


def show(
    options: SinkOptions,
    sources: Sequence[str],
    elsewhere: ClientOptions | None,
    *,
    principal: str | None,
    real_time: bool = False,
    as_json: bool = False,
) -> None:
    """Print the commands for `principal`, by default the user of the options. `sources` are topics on the sink's
    cluster, or on that of `elsewhere`; `real_time` as for `rights.of_sink`.
    """
    if options.topic is None and not options.output_topics:
        raise typer.BadParameter("requires --topic or --output-topic", param_hint="--print-acls")
    of_source = rights.of_source(sources)
    of_sink = rights.of_sink(options, real_time=real_time)
    required = of_sink if elsewhere else [*of_source, *of_sink]
    optional = rights.optional(options)
    if as_json:
        groups = {"required": required, "optional": optional} | ({"source": of_source} if elsewhere else {})
        print(json.dumps({part: [right._asdict() for right in rights] for part, rights in groups.items()}, indent=1))
        return
    user = principal or _user(options.client)
    title = "Optional: to create the ledger topic, to see what hangs in the output, and to check more before the start"
    parts = [_script(options.client, user, "Required", required), _script(options.client, user, title, optional)]
    if elsewhere:
        user = principal or _user(elsewhere)
        parts.insert(0, _script(elsewhere, user, "Required on the source's cluster", of_source))
    print(printable("\n".join(parts)), end="")


def _user(client: ClientOptions) -> str:
    if client.security.username is None:
        raise typer.BadParameter("requires --principal, for example User:orders", param_hint="--print-acls")
    return f"User:{client.security.username}"


def _script(client: ClientOptions, user: str, title: str, granted: Sequence[Right]) -> str:
    tool = f"kafka-acls.sh --bootstrap-server {client.servers} --command-config admin.properties"
    prefix = f"{tool} --add --allow-principal"
    lines = [
        f"# {title}",
        f'acls() {{ {prefix} {shlex.quote(user)} "$@"; }}',
        *(f"acls {arguments}" for arguments in rights.commands(granted)),
    ]
    return "".join(f"{line}\n" for line in lines)
