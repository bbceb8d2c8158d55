"""`kafka-eos top`: a live screen of open transactions, the partitions that they hold, and queries."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from spark_kafka_eos.errors import BrokerError
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.tools.cli.query_options import BootstrapServers, Properties, client_of
from spark_kafka_eos.tools.cli.query_tables import not_looked_into
from spark_kafka_eos.tools.cli.top_rows import Picture
from spark_kafka_eos.tools.cli.top_screen import LONGEST_S, SHORTEST_S, Top
from spark_kafka_eos.tools.cli.transactions import ANSWER_MS
from spark_kafka_eos.tools.operators.open_transactions import partitions_of, survey, topics_left_out
from spark_kafka_eos.tools.operators.queries import QueryReader

MOST_PARTITIONS = 2_000  # that are looked at each time, unless topics are named


def top(
    bootstrap_servers: BootstrapServers = None,
    properties: Properties = None,
    topic: Annotated[
        list[str] | None, typer.Option(help="Look only at the partitions of this topic; can be repeated.")
    ] = None,
    ledger_topic: Annotated[
        list[str] | None,
        typer.Option(help="A query's ledgerTopic; can be repeated. Default: all that groups point to."),
    ] = None,
    interval: Annotated[float, typer.Option(min=SHORTEST_S, max=LONGEST_S, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Watch open transactions by age, the partitions that they hold, and queries.

    Keys: s sorts by the next column, r reverses, / filters, Enter describes, Tab goes to the next table, space pauses,
    + and - change the interval, q quits.
    """
    client = client_of("--bootstrap-servers", bootstrap_servers, properties).answering_within(ANSWER_MS)
    with Cluster(client) as cluster:
        look = Look(cluster, topics=topic, ledger_topics=ledger_topic)
        look()  # what is wrong with the options or the cluster is said before the screen
        Top(look, seconds=interval, clock=time.time).run()


class Look:
    """Looks at a cluster; one thread at a time. Without `ledger_topics`, it looks into those that groups point to."""

    def __init__(self, cluster: Cluster, *, topics: Sequence[str] | None, ledger_topics: Sequence[str] | None) -> None:
        self._cluster, self._topics = cluster, topics
        self._queries = QueryReader(cluster, ledger_topics=ledger_topics or None)
        self._incomplete: list[str] = []
        if not ledger_topics:
            with contextlib.suppress(BrokerError):  # not allowed to read a ledger topic: every look says it
                self._incomplete = [*not_looked_into(self._queries, self._queries.find())]

    def __call__(self) -> Picture:
        remarks = list(self._incomplete)
        try:
            queries = self._queries.read()
        except BrokerError as error:  # not allowed to read a ledger topic, for example
            queries = []
            remarks.append(f"no queries: {error.what}")
        remarks += [f"there is no topic {topic}" for topic in self._queries.lacking]
        partitions = partitions_of(self._cluster, self._topics)
        if self._topics is None:
            remarks += [f"topics may be missing: {why}" for why in topics_left_out(self._cluster)]
        if self._topics is None and len(partitions) > MOST_PARTITIONS:
            remarks.append(
                f"of {len(partitions)} partitions, only those that queries write, and those of open transactions: "
                "see --topic"
            )
            partitions = [tp for tp in partitions if tp.topic in self._queries.outputs]
        transactions = survey(self._cluster, partitions, now_ms=int(time.time() * 1e3), open_too=self._topics is None)
        return Picture(survey=transactions, queries=queries, remarks=tuple(remarks))
