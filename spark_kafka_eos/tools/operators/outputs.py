"""What is open in the topics that a query writes: an open transaction there holds back everyone who reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from spark_kafka_eos.tools.operators.known import least
from spark_kafka_eos.tools.operators.survey import OpenPart, Survey

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """A topic that a query writes, as its leaders describe it.

    `partitions` is how many of its partitions were looked at. `holding` has for each partition with open transactions
    the one that began first. `held_offsets` is how many offsets these hold back from read_committed readers, as far as
    that is known; None instead of 0 if that of a partition is not. `unknown` says why the topic, or other partitions of
    it, could not be looked at.
    """

    topic: str
    partitions: int
    holding: tuple[OpenPart, ...]
    held_offsets: int | None
    unknown: tuple[str, ...] = ()

    @property
    def oldest(self) -> OpenPart | None:
        """Of the open ones, the one that has held its partition for longest."""
        return min(self.holding, key=lambda part: (part.since_ms is None, part.since_ms or 0), default=None)


def outputs(topics: Iterable[str], survey: Survey, unknown: Mapping[str, str] = _NONE) -> list[Output]:
    """Each of these topics, by name, as far as the survey has its partitions; `unknown` are those that no broker
    describes, with the reason.
    """
    return [_output(topic, survey, unknown.get(topic)) for topic in sorted(set(topics))]


def _output(topic: str, survey: Survey, why: str | None) -> Output:
    whys = [] if why is None else [why]
    whys += [reason for tp, reason in survey.unavailable.items() if tp.topic == topic]
    log_ends = [log_end for tp, log_end in survey.log_ends.items() if tp.topic == topic]
    return Output(
        topic=topic,
        partitions=sum(tp.topic == topic for tp in survey.producers),
        holding=tuple(part for part in survey.open_parts if part.holds and part.partition.topic == topic),
        held_offsets=least([*(log_end.lag for log_end in log_ends), *(None for _ in whys)]),
        unknown=tuple(dict.fromkeys(whys)),
    )
