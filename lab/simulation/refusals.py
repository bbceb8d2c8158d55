"""Answers that contain only an error code, in each API's field for it."""

from __future__ import annotations

from types import SimpleNamespace as Answer
from typing import Any

from lab.simulation.reading import refused_fetch


def refusal(api: str, request: Any, code: int) -> Any:
    """An answer of `api` with only the error `code`."""
    match api:
        case "Produce":
            responses = [
                Answer(
                    name=topic.name,
                    partition_responses=[
                        Answer(index=p.index, error_code=code, base_offset=-1, error_message=None, record_errors=())
                        for p in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
            return Answer(responses=responses)
        case "AddPartitionsToTxn":
            topics = [
                Answer(
                    name=topic.name,
                    results_by_partition=[
                        Answer(partition_index=number, partition_error_code=code) for number in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
            return Answer(results_by_topic_v3_and_below=topics)
        case "Fetch":
            return refused_fetch(request, code)
        case "ListOffsets":
            topics = [
                Answer(
                    name=topic.name,
                    partitions=[
                        Answer(partition_index=p.partition_index, error_code=code, timestamp=-1, offset=-1)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
            return Answer(topics=topics)
        case "CreateTopics":
            return Answer(
                topics=[Answer(name=topic.name, error_code=code, error_message=None) for topic in request.topics]
            )
        case "DescribeTransactions":
            states = [Answer(transactional_id=name, error_code=code) for name in request.transactional_ids]
            return Answer(transaction_states=states)
        case "TxnOffsetCommit" | "OffsetCommit":
            topics = [
                Answer(
                    name=topic.name,
                    partitions=[Answer(partition_index=p.partition_index, error_code=code) for p in topic.partitions],
                )
                for topic in request.topics
            ]
            return Answer(topics=topics)
        case _:
            return Answer(error_code=code, topics=[])
