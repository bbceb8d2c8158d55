"""The token: what was not written by this sink, for this id and with its key, is never used."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_eos.kafka.producer import ProducerIdentity
from spark_kafka_eos.ledger.signing import UNSIGNED, Signer
from spark_kafka_eos.participants.token import Token, UnreadableToken, decode, encode

COUNT = st.integers(0, 2**62)
TEXT = st.text(max_size=60)
tokens = st.builds(
    Token,
    identity=st.builds(
        ProducerIdentity,
        transactional_id=TEXT,
        producer_id=COUNT,
        epoch=st.integers(0, 2**15 - 1),
        transaction_version=st.integers(0, 2),
    ),
    query_id=TEXT,
    batch_id=COUNT,
    digest=TEXT,
    serial=COUNT,
    records=COUNT,
    bytes=COUNT,
    cluster=TEXT,
)
TOKEN = Token(
    identity=ProducerIdentity(transactional_id="id", producer_id=7, epoch=3, transaction_version=2),
    query_id="query",
    batch_id=4,
    digest="d",
    serial=5,
    records=10,
    bytes=100,
    cluster="there",
)
SIGNER = Signer("id", ["a key of 16 letters"])


@given(tokens, st.sampled_from([UNSIGNED, SIGNER]))
def test_a_token_survives_the_round_trip(token: Token, signer: Signer) -> None:
    assert decode(encode(token, signer), signer) == token


# As version 0.2 has written it.
EARLIER = (
    '{"v":1,"id":"id","producer":7,"epoch":3,"tv":2,"query":"query","batch":4,"digest":"d","serial":5,"records":10,'
    '"bytes":100}'
)


def test_a_token_of_an_earlier_release_names_no_cluster_and_is_written_as_it_was() -> None:
    earlier = replace(TOKEN, cluster="")
    assert decode(EARLIER, UNSIGNED) == earlier
    assert encode(earlier, UNSIGNED) == EARLIER


def test_no_token_stays_none() -> None:
    assert decode(None, SIGNER) is None


def changed(**fields: object) -> str:
    return json.dumps(json.loads(encode(TOKEN, SIGNER)) | fields)


@pytest.mark.parametrize(
    ("text", "signer", "reason"),
    [
        ("not JSON", UNSIGNED, "another program"),
        ("[1]", UNSIGNED, "another program"),
        ('{"query": "q"}', UNSIGNED, "another program"),
        ('{"v": 2}', UNSIGNED, "version 2"),
        ('{"v": 1}', UNSIGNED, "a field is missing"),
        (encode(TOKEN, UNSIGNED), SIGNER, "not signed"),
        (encode(TOKEN, Signer("id", ["another key of 16 letters"])), SIGNER, "not signed"),
        (encode(TOKEN, Signer("other", ["a key of 16 letters"])), SIGNER, "not signed"),
        (changed(epoch=4), SIGNER, "not signed"),
        (changed(batch=5), SIGNER, "not signed"),
        (changed(cluster="here"), SIGNER, "not signed"),
        (changed(cluster=""), SIGNER, "not signed"),
        (changed(cluster=None), UNSIGNED, "a field is missing"),
        (changed(batch="5"), UNSIGNED, "a field is missing"),
    ],
)
def test_other_content_is_not_a_token(text: str, signer: Signer, reason: str) -> None:
    found = decode(text, signer)
    assert isinstance(found, UnreadableToken)
    assert reason in found.reason


def test_a_replaced_key_is_still_accepted() -> None:
    assert decode(encode(TOKEN, SIGNER), Signer("id", ["the new key of letters", "a key of 16 letters"])) == TOKEN
