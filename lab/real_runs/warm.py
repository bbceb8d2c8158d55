"""Imported where drivers are forked from: what each of them would import and compile for itself."""

from __future__ import annotations

import pyarrow as pa

from lab.real_runs import driver
from spark_kafka_eos.protocol.versions import RANGES, TV1_NEWEST
from spark_kafka_eos.testing.proxy_frames import message_class

__all__ = ["driver"]


def compile_codecs() -> None:
    """kafka-python compiles the codec of a message at its first use."""
    for api, (_, newest) in RANGES.items():
        for version in {newest, TV1_NEWEST.get(api, newest)}:
            for kind in ("Request", "Response"):
                message = message_class(f"{api}{kind}")
                how = {"compact": message.flexible_version_q(version), "tagged": message.flexible_version_q(version)}
                fields = message._struct  # noqa: SLF001 - kafka-python has no other way to compile ahead
                fields.compiled_encode_into(version, **how)
                fields.compiled_decode_from(version, **how, data_class=message[None])


compile_codecs()
pa.array([b""], pa.binary())  # imports pandas
