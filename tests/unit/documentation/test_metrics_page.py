"""docs/monitoring.md has a row for each metric, as the code describes it."""

from __future__ import annotations

import re

import pytest

from spark_kafka_eos.observe.query_metrics import QUERY_METRICS
from spark_kafka_eos.tools.operators.cluster_metrics import CLUSTER_METRICS
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "monitoring.md").read_text()


@pytest.mark.parametrize(
    ("heading", "table"), [("The driver's metrics", QUERY_METRICS), ("The cluster's metrics", CLUSTER_METRICS)]
)
def test_the_page_on_monitoring_describes_every_metric_as_the_code_does(heading, table):
    found = re.search(rf"^### {heading}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    rows = [line for line in found[1].splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.help} |"
        for metric in table
    ]
