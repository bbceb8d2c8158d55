"""Processes that are forked from one without threads that is warm: they start in milliseconds instead of a second."""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import ForkServerContext

from spark_kafka_eos.kafka.protocol.versions import RANGES, TV1_NEWEST
from spark_kafka_eos.testing.proxy_frames import message_class

_warm: list[str] = []


def forked_after(module: str) -> ForkServerContext:
    """Starts processes that have imported `module`, and those of all other calls. Call it before the first one starts:
    this process has one server.
    """
    _warm.append(module)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_warm)
    return context


def compile_codecs() -> None:
    """Compile what kafka-python compiles at a message's first use."""
    for api, (_, newest) in RANGES.items():
        for version in {newest, TV1_NEWEST.get(api, newest)}:
            for kind in ("Request", "Response"):
                message = message_class(f"{api}{kind}")
                how = {"compact": message.flexible_version_q(version), "tagged": message.flexible_version_q(version)}
                fields = message._struct  # noqa: SLF001 - kafka-python has no other way to compile ahead
                fields.compiled_encode_into(version, **how)
                fields.compiled_decode_from(version, **how, data_class=message[None])
