"""Any bytes, whatever they come as, end in sound values or in an error of `errors.py`; so do damaged ones.

`python -m lab fuzz` does the same for as long as one likes, led by coverage.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab import fuzz
from lab.fuzz import TARGETS, seeds
from lab.fuzzed_broker import APIS, converse
from spark_kafka_eos.errors import AuthenticationFailed

targets = pytest.mark.parametrize("name", sorted(TARGETS))


def test_good_input_is_accepted():
    for name, target in TARGETS.items():
        assert seeds(name), name
        for seed in seeds(name):
            target(seed)


def test_a_good_answer_ends_in_no_error():
    answers = sorted(set(APIS) - {"SaslHandshake", "SaslAuthenticate"})
    bodies = {api: body for api in answers for body in seeds(api)}
    assert {api: converse(bodies[api], api) for api in answers} == dict.fromkeys(answers)


def test_a_refused_login_is_all_that_comes_of_a_challenge_to_somebody_else():
    (body,) = seeds("SaslAuthenticate")
    assert isinstance(converse(body, "SaslAuthenticate"), AuthenticationFailed)


@targets
@settings(deadline=None, max_examples=20)
@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused(name, data):
    TARGETS[name](data)


@targets
@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_input_is_accepted_or_refused(name, data):
    TARGETS[name](damaged(name, data))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", ["Fetch", "batches", "compression", "connection", "rows"])
@settings(deadline=None, max_examples=10_000)
@given(st.data())
def test_ten_thousand_damaged_responses_are_accepted_or_refused(name, data):
    TARGETS[name](damaged(name, data))


def test_a_response_that_takes_too_much_memory_is_noticed(monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 16)
    with pytest.raises(AssertionError, match="bytes"):
        TARGETS["rows"](seeds("rows")[0])


def damaged(name, data):
    """Valid input with one to three changes."""
    damaged = bytearray(data.draw(st.sampled_from(seeds(name))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged)))
        how = data.draw(st.sampled_from(["flip", "set", "cut", "insert", "number"]))
        if how == "flip" and at < len(damaged):
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        elif how == "set":
            damaged[at : at + 1] = bytes([data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))])
        elif how == "cut":
            del damaged[at : at + data.draw(st.integers(1, 8))]
        elif how == "insert":
            damaged[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        else:
            damaged[at : at + 4] = data.draw(st.sampled_from([0, -1, 2**31 - 1, -(2**31), 1 << 24])).to_bytes(
                4, "big", signed=True
            )
    return bytes(damaged)
