"""This package's loggers, whose lines have printable characters only.

Ids, topics and what brokers and registries say are anybody's. An escape sequence in a log reaches the terminal of who
reads it, and a line break in a name is a line that nobody logged. Line breaks of a message itself stay.
"""

from __future__ import annotations

import logging

from spark_kafka_eos.kafka.words import one_line, printable


def logger(name: str) -> logging.Logger:
    """The logger of this name, which users configure as any other."""
    log = logging.getLogger(name)
    log.addFilter(_make_printable)
    return log


def _make_printable(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if not message.isprintable():
        sanitize = printable if "\n" in str(record.msg) else one_line
        record.msg, record.args = sanitize(message), None
    return True
