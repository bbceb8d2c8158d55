"""The source's options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.client_options import ClientOptions
from spark_kafka_eos.kafka.partitions import Offsets, TopicPartition

if TYPE_CHECKING:
    from spark_kafka_eos.options.values import LatestMinus

Start = Literal["earliest", "latest", "committed", "committed-or-earliest", "committed-or-latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamps:
    """Positions by timestamp: the first record at or after it (milliseconds since 1970).

    Either `everywhere` is set, or one timestamp for each of `partitions`. Without a record that recent, the start
    follows `if_none`, and the end is the partition's latest offset, as in the built-in source.
    """

    everywhere: int | None = None
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    if_none: Literal["error", "latest"] = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkLedger:
    """The ledger entry of `transactional_id`, in `topic` on the cluster that `client` connects to. With `keys`, only
    one that was signed with one of them counts.
    """

    client: ClientOptions
    transactional_id: str
    topic: str
    keys: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Exactly one of `subscribe`, `subscribe_pattern` (Python's syntax) and `assign` is set.

    Explicit offsets may be -2 (earliest) or -1 (latest). `starting_offsets_strategy` is for partitions that explicit
    `starting_offsets` do not list. `sink` names the ledger that `committed` starts from instead of the group.
    `ending_offsets` end a batch read or a stream. `removed_topics` are those of the checkpoint whose unread records are
    given up, because the query does not read them any more. `ledger_topics` are not read, whatever matches
    them.

    Sizes are in bytes, times in milliseconds. `columns` come from the reader's schema(…); if it is empty, all columns
    are read. Those in `required` are declared NOT NULL. `rows` says what a row is: a record, or an offset range that
    somebody else will read. `client_rack` may be `env:NAME`: the variable's value in the process that reads.
    """

    client: ClientOptions
    subscribe: tuple[str, ...] = ()
    subscribe_pattern: str | None = None
    assign: tuple[TopicPartition, ...] = ()
    starting_offsets: Start | LatestMinus | Offsets | Timestamps = "latest"
    starting_offsets_strategy: Literal["error", "earliest", "latest"] = "error"
    ending_offsets: Literal["latest"] | Offsets | Timestamps = "latest"
    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay: int = 900_000
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_bytes_per_partition: int = 128 << 20
    fail_on_data_loss: bool = True
    removed_topics: tuple[str, ...] = ()
    ledger_topics: frozenset[str] = frozenset()
    commit_offsets: bool = False
    metrics_port: int | None = None
    trace_dir: str | None = None
    metrics_host: str = "127.0.0.1"
    include_headers: bool = False
    rows: Literal["records", "offsetRanges", "realTime"] = "records"
    columns: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    group_id: str | None = None
    sink: SinkLedger | None = None
    client_rack: str = ""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 8_388_608
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True

    @property
    def selecting(self) -> str:
        """The option that says what to read."""
        return "subscribe" if self.subscribe else "assign" if self.assign else "subscribePattern"

    def selects(self, partition: TopicPartition) -> bool:
        """Whether the query reads this partition, if it exists."""
        if partition.topic in self.ledger_topics:
            return False
        if self.subscribe_pattern is not None:
            return self.finds_pattern(partition.topic)
        return partition in self.assign or partition.topic in self.subscribe

    def finds_pattern(self, topic: str) -> bool:
        """Whether `subscribe_pattern` occurs anywhere in the topic's name, as in the built-in source."""
        return self.subscribe_pattern is not None and re.search(self.subscribe_pattern, topic) is not None

    def finds_pattern_in_a_part(self, topic: str) -> bool:
        """Whether it occurs in the name, but is not the whole name: what earlier releases did not select."""
        if self.subscribe_pattern is None:
            return False
        return self.finds_pattern(topic) and re.fullmatch(self.subscribe_pattern, topic) is None
