"""What is unknown is not 0, and hides nothing of what is known."""

from __future__ import annotations

import pytest

from spark_kafka_eos.tools.operators.known import least


@pytest.mark.parametrize(
    ("values", "total", "largest"),
    [((), None, None), ((None,), None, None), ((0, 0), 0, 0), ((0, None), None, None), ((3, None, 4, 0), 7, 4)],
)
def test_what_is_known_is_the_least_that_there_is_and_no_zero_while_something_is_unknown(values, total, largest):
    assert (least(values), least(values, max)) == (total, largest)
