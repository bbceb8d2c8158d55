"""Formats requests and answers for the trace of a history."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spark_kafka_eos.kafka.wire.record_batch import HEADER


def shown(api: str, version: int, request: Any) -> str:
    """A request: its name and version, and the relevant fields."""
    return f"{api} v{version}{_details(api, request)}"


def _details(api: str, request: Any) -> str:
    match api:
        case "Produce":
            batches = []
            for topic in request.topic_data:
                for p in topic.partition_data:
                    header = HEADER.unpack_from(p.records)
                    batches.append(
                        f"{topic.name}-{p.index}: epoch {header[10]}, sequence {header[11]}, {header[12]} records"
                    )
            return f" ({'; '.join(batches)})"
        case "Fetch":
            positions = [f"{p.partition} from {p.fetch_offset}" for topic in request.topics for p in topic.partitions]
            return f" ({', '.join(positions)})"
        case "AddPartitionsToTxn":
            topics = request.v3_and_below_topics
            added = ", ".join(f"{topic.name}-{number}" for topic in topics for number in topic.partitions)
            return f" (id {request.v3_and_below_producer_id}, epoch {request.v3_and_below_producer_epoch}: {added})"
        case "EndTxn":
            end = "commit" if request.committed else "abort"
            return f" ({end}, id {request.producer_id}, epoch {request.producer_epoch})"
        case "AddOffsetsToTxn" | "TxnOffsetCommit":
            return f" (id {request.producer_id}, epoch {request.producer_epoch} group {request.group_id})"
        case "InitProducerId":
            return f" (id {request.producer_id}, epoch {request.producer_epoch})"
        case "OffsetFetch":
            return f" (group {request.group_id})"
        case _:
            return ""


def shown_answer(answer: Any) -> str:
    """An answer: its error codes, its producer identity, and the relevant state of a transaction or a log."""
    text = ", ".join(map(str, sorted(set(codes_in(answer))))) or "0"
    if hasattr(answer, "producer_epoch"):
        text += f" (id {answer.producer_id}, epoch {answer.producer_epoch})"
    for state in getattr(answer, "transaction_states", ()):
        if not state.error_code:
            text += f" ({state.transaction_state}, id {state.producer_id}, epoch {state.producer_epoch})"
    for p in _partitions(answer):
        if hasattr(p, "high_watermark"):
            text += f" ({len(p.records)} bytes; stable up to {p.last_stable_offset} of {p.high_watermark})"
        elif hasattr(p, "committed_offset"):
            text += f" ({p.committed_offset})"
        elif hasattr(p, "timestamp"):
            text += f" ({p.offset})"
    return text


def codes_in(answer: Any) -> Iterator[int]:
    """Every error code in an answer."""
    parts = [answer, *getattr(answer, "topics", ()), *getattr(answer, "transaction_states", ()), *_partitions(answer)]
    yield from (part.error_code for part in parts if hasattr(part, "error_code"))
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        yield from (p.partition_error_code for p in topic.results_by_partition)


def _partitions(answer: Any) -> Iterator[Any]:
    for topic in (*getattr(answer, "responses", ()), *getattr(answer, "topics", ())):
        yield from getattr(topic, "partition_responses", getattr(topic, "partitions", ()))
