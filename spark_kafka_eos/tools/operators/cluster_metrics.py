"""The metrics of a cluster: of every transactional.id with a ledger, and of the transactions on their topics.

They come from Kafka alone, so they are the same whether a query runs, hangs or is gone. Their names differ from those
of `query_metrics`, because both may be scraped for one query. KIP-98 names the producer ids, the active
transactional.ids and the last stable offset as what brokers should show.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.observe.metrics import Metric, Series, by_topic
from spark_kafka_eos.tools.operators.status import PartitionLag, QueryStatus
from spark_kafka_eos.tools.operators.survey import Ending, Survey, active_ids, producer_counts

MOST_IDS = 500
"""The most transactional.ids that have series: those that committed last, those whose transactions are oldest."""
MOST_PARTITIONS = 1_000
"""The most partitions that have series: those in which something hangs or that cannot be judged, then those in which
most offsets are held back."""

UP = Metric(
    "kafka_eos_cluster_up",
    "gauge",
    (),
    "1 if the cluster could be read in the last two minutes, or at one of the last four looks, else 0, and there is "
    "nothing else.",
)
LEDGER_BATCH = Metric(
    "kafka_eos_cluster_ledger_batch", "gauge", ("transactional_id",), "The batch that was committed last."
)
COMMITS = Metric(
    "kafka_eos_cluster_commits_total",
    "counter",
    ("transactional_id",),
    "Batches committed under the transactional id since its ledger exists: the number of the last commit.",
)
LAST_COMMIT = Metric(
    "kafka_eos_cluster_last_commit_timestamp_seconds",
    "gauge",
    ("transactional_id",),
    "When the last batch was committed, in seconds since 1970.",
)
LAG = Metric(
    "kafka_eos_cluster_lag_offsets",
    "gauge",
    ("transactional_id", "topic"),
    "Offsets between the last commit and the last stable offset, over all partitions that are known; absent instead of "
    "0 if one is not.",
)
LAG_SECONDS = Metric(
    "kafka_eos_cluster_lag_seconds",
    "gauge",
    ("transactional_id", "topic"),
    "Age of the oldest record that could be read and is not committed, as far as it is known; 0 if there is none, "
    "absent instead of 0 if that of a partition is not known.",
)
LOST = Metric(
    "kafka_eos_cluster_lost_offsets",
    "gauge",
    ("transactional_id", "topic"),
    "Offsets that were deleted before the query read them, over all partitions that are known; absent instead of 0 if "
    "one is not.",
)
STABLE_OFFSET = Metric(
    "kafka_eos_cluster_last_stable_offset", "gauge", ("topic", "partition"), "The partition's last stable offset."
)
LSO_LAG = Metric(
    "kafka_eos_cluster_lso_lag_offsets",
    "gauge",
    ("topic", "partition"),
    "Offsets that open transactions hold back: from the last stable offset to the high watermark.",
)
PRODUCERS = Metric(
    "kafka_eos_cluster_producer_ids",
    "gauge",
    ("topic", "partition"),
    "Live producer ids: those that the partition's leader remembers.",
)
OPEN = Metric(
    "kafka_eos_cluster_open_transactions",
    "gauge",
    ("topic", "partition"),
    "Transactions that are open in the partition.",
)
HANGING = Metric(
    "kafka_eos_cluster_hanging_transactions",
    "gauge",
    ("topic", "partition"),
    "Transactions that are open in the partition and that neither producer nor coordinator will end; absent while it "
    "is not known whether there is one.",
)
UNJUDGED = Metric(
    "kafka_eos_cluster_unjudged",
    "gauge",
    ("topic", "partition"),
    "1 if it is not known of every transaction that may be open in the partition whether it hangs, else 0.",
)
MISSING = Metric(
    "kafka_eos_cluster_missing_ledger_topics",
    "gauge",
    (),
    "Ledger topics to look at that do not exist, or that the exporter may not describe.",
)
SILENT = Metric(
    "kafka_eos_cluster_silent_brokers",
    "gauge",
    (),
    "Brokers that did not say which transactions they coordinate, and those that are down and coordinate what no other "
    "one does.",
)
OPEN_AGE = Metric(
    "kafka_eos_cluster_open_transaction_age_seconds",
    "gauge",
    ("transactional_id",),
    "How long ago the transaction began, of each that its coordinator has open.",
)
ACTIVE_IDS = Metric(
    "kafka_eos_cluster_transactional_ids",
    "gauge",
    ("broker", "state"),
    "Active transactional ids by the broker that coordinates them, and by the state of their transaction.",
)

CLUSTER_METRICS: tuple[Metric, ...] = (
    UP,
    MISSING,
    LEDGER_BATCH,
    COMMITS,
    LAST_COMMIT,
    LAG,
    LAG_SECONDS,
    LOST,
    STABLE_OFFSET,
    LSO_LAG,
    PRODUCERS,
    OPEN,
    HANGING,
    UNJUDGED,
    SILENT,
    OPEN_AGE,
    ACTIVE_IDS,
)


def down() -> Series:
    """What is known while the cluster cannot be read."""
    series = Series()
    series.set(UP, value=0)
    return series


def cluster_series(queries: Iterable[QueryStatus], survey: Survey, *, missing: int = 0) -> Series:
    """The values of all metrics, as of the survey; `missing` ledger topics are not there."""
    series = Series()
    series.set(UP, value=1)
    series.set(MISSING, value=missing)
    latest = sorted(queries, key=lambda query: query.last.record.timestamp_ms if query.last else 0, reverse=True)
    for query in latest[:MOST_IDS]:
        _add_query(series, query, survey.taken_ms)
    series.set(SILENT, value=len(survey.silent))
    _add_partitions(series, survey)
    for facts in survey.open_transactions[:MOST_IDS]:
        if facts.age_ms is not None:
            series.set(OPEN_AGE, facts.transactional_id, value=facts.age_ms / 1e3)
    for broker, states in active_ids(survey.listings).items():
        for state, count in states.items():
            series.set(ACTIVE_IDS, str(broker), state, value=count)
    return series


def _add_query(series: Series, query: QueryStatus, now_ms: int) -> None:
    name = query.transactional_id
    if query.last is not None:
        series.set(LAST_COMMIT, name, value=query.last.record.timestamp_ms / 1e3)
    if query.entry is not None:
        series.set(LEDGER_BATCH, name, value=query.entry.batch_id)
        series.add(COMMITS, name, amount=query.entry.serial)
    lags: dict[TopicPartition, list[PartitionLag]] = {}  # one for each source that reads the partition
    unknown: set[str] = set()  # topics with a partition that is unknown
    undated: set[str] = set()  # topics with one whose oldest unread record has no known time
    for source in query.sources:
        if source is not None:
            unknown.update(tp.topic for tp in source.unknown)
            for tp, lag in source.partitions.items():
                lags.setdefault(tp, []).append(lag)
                if lag.late_ms(now_ms) is None:
                    undated.add(tp.topic)
    late = {tp: max(lag.late_ms(now_ms) or 0 for lag in theirs) / 1e3 for tp, theirs in lags.items()}
    for metric, values, combine, in_doubt in (
        (LAG, {tp: sum(lag.unread for lag in theirs) for tp, theirs in lags.items()}, sum, unknown),
        (LAG_SECONDS, late, max, unknown | undated),
        (LOST, {tp: sum(lag.lost for lag in theirs) for tp, theirs in lags.items()}, sum, unknown),
    ):
        # What is known of a topic is the least that there is; so 0 says nothing if a partition is unknown.
        shown = {tp: value for tp, value in values.items() if value or tp.topic not in in_doubt}
        for topic, value in by_topic(shown, combine).items():
            series.set(metric, name, topic, value=value)


def _add_partitions(series: Series, survey: Survey) -> None:
    counts = producer_counts(survey.producers)
    hanging = Counter(part.partition for part in survey.hanging)
    unknown = {part.partition for part in survey.open_parts if part.ending is Ending.UNKNOWN}
    unjudged = unknown | (survey.log_ends.keys() | survey.unavailable.keys()) - counts.keys()
    for tp in _most_urgent(survey, unjudged | hanging.keys()):
        labels = tp.topic, str(tp.partition)
        if (log_ends := survey.log_ends.get(tp)) is not None:
            series.set(STABLE_OFFSET, *labels, value=log_ends.last_stable_offset)
            series.set(LSO_LAG, *labels, value=log_ends.lag)
        if tp in counts:
            series.set(PRODUCERS, *labels, value=counts[tp].producer_ids)
            series.set(OPEN, *labels, value=counts[tp].open_transactions)
            if hanging[tp] or tp not in unknown:
                series.set(HANGING, *labels, value=hanging[tp])
        series.set(UNJUDGED, *labels, value=tp in unjudged)


def _most_urgent(survey: Survey, urgent: Collection[TopicPartition]) -> Sequence[TopicPartition]:
    partitions = {*survey.log_ends, *survey.producers, *survey.unavailable}
    lags = {tp: survey.log_ends[tp].lag if tp in survey.log_ends else 0 for tp in partitions}
    return sorted(lags, key=lambda tp: (tp not in urgent, -lags[tp], tp))[:MOST_PARTITIONS]
