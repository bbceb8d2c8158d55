"""What gets the report of each micro-batch: the log, and what the options ask for.

An observer gets the report of every batch, also of one that was skipped or that raised an error. Its own errors are
logged and never reach the batch, whose outcome is settled by then.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from spark_kafka_eos.appending.report import CommitReport
from spark_kafka_eos.dead_letters.causes import causes_to_text
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.options import SinkOptions

BATCHES = "spark_kafka_eos.writing.commit"
"""The logger of batches. Users' logging configurations have this name, so it stays although the modules have moved."""
_log = logger(BATCHES)

Observer = Callable[[CommitReport], None]

UNNAMED = "unnamed"  # the file in traceDir that all writes without a ledger share


def log_report(report: CommitReport) -> None:
    """Log one line for a batch that was committed. Of others, the log has the reason already."""
    if report.outcome == "committed":
        _log.info("%s", report)


def log_json(report: CommitReport) -> None:
    """Log the report as one JSON object, without its trace: an error if the batch was refused or failed."""
    values = report.to_json()
    del values["trace"]
    _log.log(logging.ERROR if report.error else logging.INFO, "%s", json.dumps(values), extra={"report": values})


def log_dead_letters(topic: str, report: CommitReport) -> None:
    """Log a warning for a committed batch that has dead letters."""
    if report.dead_letters:
        _log.warning(
            "batch %d of query %s: %d of %d records are dead letters in %s: %s",
            report.batch_id,
            report.query_id,
            sum(report.dead_letters.values()),
            report.records,
            topic,
            causes_to_text(report.dead_letters),
        )


def observer(options: SinkOptions, collector: str | None = None) -> Observer:
    """The observers that a query's options ask for, as one; with the session's listener, if it has a `collector`."""
    observers: list[Observer] = [log_json if options.log_format == "json" else log_report]
    if options.dead_letter_topic is not None:
        observers.append(functools.partial(log_dead_letters, options.dead_letter_topic))
    if collector is not None:
        from spark_kafka_eos.observe.outcomes import send_report  # with a ProgressListener

        observers.append(functools.partial(send_report, collector, options))
    if options.trace_dir is not None:
        # Without a ledger, an id may be a random one, and each would have a file.
        name = options.transactional_id if options.ledger_topic else UNNAMED
        observers.append(functools.partial(_write_trace, Path(options.trace_dir), name))
    if options.open_telemetry:
        from spark_kafka_eos.observe.telemetry import Telemetry

        observers.append(Telemetry(options.transactional_id, options.open_telemetry_links))
    return together(observers)


def together(observers: Sequence[Observer]) -> Observer:
    """One observer that calls each of these."""

    def observe(report: CommitReport) -> None:
        for observer in observers:
            try:
                observer(report)
            except Exception as error:  # noqa: BLE001 - the batch has ended, whatever is wrong here
                _log.warning("cannot report batch %d of query %s: %r", report.batch_id, report.query_id, error)

    return observe


def _write_trace(folder: Path, name: str, report: CommitReport) -> None:
    from spark_kafka_eos.observe import trace_file  # with traceDir

    trace_file.append(folder, name, report.to_json())
