"""An operator's InitProducerId takes the id from the owner that was shown, and from nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_eos.errors import ToolFailed
from spark_kafka_eos.kafka.protocol import describe
from spark_kafka_eos.kafka.protocol.facts import Unavailable
from spark_kafka_eos.tools.operators.ending import take_over
from tests.both import OPTIONS, PATIENCE, Kafka, begin

ID = OPTIONS.transactional_id
PATIENT = replace(PATIENCE, delivery_timeout_ms=100_000)


@pytest.fixture(params=[2, 1], ids=["TV2", "TV1"])
def kafka(request):
    kafka = Kafka(request.param)
    begin(kafka)
    return kafka


def shown(kafka):
    return describe.transaction(kafka.cluster(PATIENT), ID, now_ms=0)


def unanswered(kafka, *, applied, then=lambda: None):
    def meet(_request, answer):
        del kafka.meets["InitProducerId"]
        if applied:
            answer()
        then()

    kafka.meets["InitProducerId"] = meet


def test_the_owner_that_was_shown_is_fenced_and_its_transaction_aborted(kafka):
    before = shown(kafka)
    take_over(kafka.cluster(PATIENT), ID, 60_000, expected=before)
    now = shown(kafka)
    assert (before.state, now.state) == ("Ongoing", "Empty")
    assert now.epoch > before.epoch


def test_an_owner_that_came_after_that_is_left_alone(kafka):
    before = shown(kafka)
    begin(kafka)
    live = shown(kafka)
    with pytest.raises(ToolFailed, match="not to the owner that was found.*Nothing was changed"):
        take_over(kafka.cluster(PATIENT), ID, 60_000, expected=before)
    assert shown(kafka) == live


@pytest.mark.parametrize("applied", [True, False])
def test_nor_is_the_id_taken_from_a_driver_that_started_while_the_answer_was_awaited(kafka, applied):
    before = shown(kafka)
    unanswered(kafka, applied=applied, then=lambda: begin(kafka))
    with pytest.raises(ToolFailed, match="was not answered.*now belongs to producer 1.*nothing more was sent"):
        take_over(kafka.cluster(PATIENT), ID, 60_000, expected=before)
    assert shown(kafka).state == "Ongoing"


@pytest.mark.parametrize("applied", [True, False])
def test_a_request_without_an_answer_is_sent_again_if_nobody_else_came(kafka, applied):
    before = shown(kafka)
    unanswered(kafka, applied=applied)
    take_over(kafka.cluster(PATIENT), ID, 60_000, expected=before)
    assert shown(kafka).state == "Empty"


def test_where_the_owner_could_not_be_read_there_is_nothing_to_compare(kafka):
    take_over(kafka.cluster(PATIENT), ID, 60_000, expected=Unavailable(reason="not allowed"))
    assert shown(kafka).state == "Empty"
