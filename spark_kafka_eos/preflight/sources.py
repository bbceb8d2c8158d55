"""What a batch shows of its sources: that one is on another cluster, that it reads what the query writes, or that its
offsets would go to a group that somebody else uses.

Each commit asks it, in a process that needs nothing else of the preflight.
"""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_eos.errors import ConfigurationError, UnknownTopic
from spark_kafka_eos.kafka.protocol import describe, offsets
from spark_kafka_eos.kafka.protocol.cluster import Cluster
from spark_kafka_eos.kafka.protocol.facts import Unavailable
from spark_kafka_eos.ledger.source_clusters import SourceClusters, ends_of_unnamed
from spark_kafka_eos.micro_batch import MicroBatch
from spark_kafka_eos.options import SinkOptions
from spark_kafka_eos.options.sink import MISSING_SOURCE, ledger_topics, written_topics
from spark_kafka_eos.preflight.checks import used_by_others
from spark_kafka_eos.preflight.loop import loop


def check_source_cluster(cluster: Cluster, options: SinkOptions, batch: MicroBatch) -> None:
    """Raise ConfigurationError if a query's first batch shows that its source is on another cluster that was not set.

    Otherwise, the source's offsets would be committed for a topic of the same name on the sink's cluster. Only sources
    that do not say which cluster they read are in doubt. It shows if the sink's cluster lacks the partition, or has
    only later or only earlier records; not if it has those offsets, too.
    """
    read = {} if options.source_clusters or batch.batch_id or not options.group_id else ends_of_unnamed(batch)
    if not read:
        return
    try:
        ends = offsets.latest(cluster, read, isolation_level="read_uncommitted")
        starts = offsets.earliest(cluster, read)
    except UnknownTopic as error:
        if options.fail_on_data_loss:
            raise error.replaced(action=MISSING_SOURCE) from error
        return
    for tp in sorted(read):
        if starts[tp] <= read[tp] <= ends[tp]:
            continue
        what = f"ends at {ends[tp]}, so the source is on another cluster"
        if read[tp] < starts[tp]:
            what = f"begins at {starts[tp]}: the source is on another cluster, unless its records were deleted since"
        raise ConfigurationError(
            "sourceClusters",
            f"is required: the batch reads {tp} up to offset {read[tp]}, but on the sink's cluster this partition "
            f"{what}",
            action="Set it to the id of the source's cluster, which spark_kafka_eos.cluster_id(options) returns.",
        )


def refuse_loop(cluster: Cluster, options: SinkOptions, batch: MicroBatch, written: Iterable[str] = ()) -> None:
    """Raise ConfigurationError if the query reads what it writes; `written` are topics that rows name.

    A topic is known by its id, too: a gateway may give it two names.
    """
    if options.allow_loop:
        return
    sources, ledger = SourceClusters(options, cluster), ledger_topics(options)
    own = {*written_topics(options), *ledger, *written}
    read = {tp.topic for tp in sources.ends_here(batch)}
    if not read:
        return
    ids = sources.topic_ids(read | own, optional=set(ledger) - read)  # the first commit creates a ledger's topic
    ids_read = {ids[name] for name in read if name in ids}
    same = {name for name in own if name in ids and ids[name].int and ids[name] in ids_read}
    if (finding := loop(read | same, options, written)) is not None:
        raise ConfigurationError(
            "deadLetterTopic" if options.dead_letter_topic in read | same else "allowLoop",
            f"{finding.subject}: {finding.found}. {finding.meaning}",
            action=f"{finding.action}.",
        )


def refuse_members(cluster: Cluster, options: SinkOptions, batch: MicroBatch) -> None:
    """Raise ConfigurationError if the batch's source offsets would go to a group that somebody else uses.

    A broker accepts the offsets of a transaction that names no member (KIP-447) whatever members the group has. So a
    member that came after the preflight would show nowhere else. Asks nothing with `preflight=false`.
    """
    if not options.preflight or not options.group_id or not SourceClusters(options, cluster).ends_here(batch):
        return
    facts = describe.group(cluster, options.group_id)
    if isinstance(facts, Unavailable):
        return  # as the preflight has said
    if (finding := used_by_others(f"group {options.group_id}", facts)) is not None:
        raise ConfigurationError(
            "kafka.group.id", f"{finding.subject} {finding.found}. {finding.meaning}", action=f"{finding.action}."
        )
