"""`LineageListener`: reports a query's input and output topics to OpenLineage.

Spark's own OpenLineage integration cannot see them: they are options of a Python data source, and what foreachBatch
writes is not in the plan. Datasets are named as OpenLineage's naming rules say: namespace `kafka://host:port` (the
first bootstrap server), name the topic. Source: the OpenLineage specification, 2-0-2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import spark_kafka_eos
from spark_kafka_eos.errors import ConfigurationError
from spark_kafka_eos.kafka.logs import logger
from spark_kafka_eos.observe.progress import kafka_sources
from spark_kafka_eos.options import ClientOptions, sink_options, source_options
from spark_kafka_eos.options.sink import written_topics

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.generated.base import RunFacet

_log = logger(__name__)

_LONGEST_ERROR = 2_000  # characters; Spark's messages contain stack traces


class LineageListener(StreamingQueryListener):
    """Reports a query's runs: START, RUNNING when its input topics are known or change, and COMPLETE or FAIL.

    `source` and `sink` are the options of the query's source and sink. The input topics are those that the query has
    read, and before its first batch those that the source's options name; the output topics are the sink's `topic`,
    `outputTopics` and `deadLetterTopic`. `query` is the name of the query to report; None is every query of the
    session, which should then have only one. `client` is OpenLineage's, by default one that its environment variables
    or its file configure. `namespace` is that of the job, whose name is the query's, or else its id. Raises
    ConfigurationError.
    """

    def __init__(
        self,
        source: Mapping[str, object],
        sink: Mapping[str, object],
        *,
        query: str | None = None,
        client: OpenLineageClient | None = None,
        namespace: str = "spark",
    ) -> None:
        try:
            from openlineage.client import OpenLineageClient
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                "client",
                "LineageListener requires OpenLineage's client, which is not installed",
                action='Run: pip install "spark-kafka-eos[lineage]"',
            ) from error
        self._source, target = source_options(source), sink_options(sink)
        self._here, self._there = _namespace(self._source.client), _namespace(target.client)
        self._outputs = written_topics(target)
        self._query, self._job_namespace = query, namespace
        self._client = client or OpenLineageClient()
        self._runs: dict[str, tuple[str, list[str]]] = {}  # by run: its job, and its input topics

    # -- called by Spark, one at a time

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if self._query not in (None, event.name):
            return
        named = sorted({*self._source.subscribe, *(tp.topic for tp in self._source.assign)})
        self._runs[str(event.runId)] = event.name or str(event.id), named
        self._emit(str(event.runId), "START")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        run = str(event.progress.runId)
        read = sorted({tp.topic for source in kafka_sources(json.loads(event.progress.json)) for tp in source.end})
        if run in self._runs and read and read != self._runs[run][1]:
            self._runs[run] = self._runs[run][0], read
            self._emit(run, "RUNNING")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run = str(event.runId)
        if run in self._runs:
            self._emit(run, "FAIL" if event.exception else "COMPLETE", error=event.exception)
            del self._runs[run]

    def _emit(self, run: str, state: str, *, error: str | None = None) -> None:
        """Send an event. What goes wrong is logged: it must not reach Spark's other listeners, nor the query."""
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.generated.error_message_run import ErrorMessageRunFacet
        from openlineage.client.generated.job_type_job import JobTypeJobFacet

        name, inputs = self._runs[run]
        facets: dict[str, RunFacet] = {}
        if error is not None:
            facets["errorMessage"] = ErrorMessageRunFacet(error[:_LONGEST_ERROR], "python")
        event = RunEvent(
            eventType=RunState[state],
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(runId=run, facets=facets),
            job=Job(
                namespace=self._job_namespace,
                name=name,
                facets={"jobType": JobTypeJobFacet("STREAMING", "SPARK", "JOB")},
            ),
            inputs=[InputDataset(namespace=self._here, name=topic) for topic in inputs],
            outputs=[OutputDataset(namespace=self._there, name=topic) for topic in self._outputs],
            producer=f"pkg:pypi/spark-kafka-eos@{spark_kafka_eos.__version__}",
        )
        try:
            self._client.emit(event)
        except Exception as failed:  # noqa: BLE001 - whatever the transport raises
            _log.warning("cannot report run %s of query %s to OpenLineage (%s): %r", run, name, state, failed)


def _namespace(client: ClientOptions) -> str:
    host, port = client.bootstrap_servers[0]
    return f"kafka://{host}:{port}"
