"""The dashboard and the alert rules: every expression parses, and names metrics and labels that there are.

That a driver and the exporter show exactly these is tested by their scrapes (tests/spark/test_metrics.py,
tests/broker/test_exporter.py).
"""

from __future__ import annotations

import json
import re
from typing import Any

import promql_parser
import pytest
import yaml
from promql_parser import VectorSelector

from spark_kafka_eos.observe.metrics import Metric
from spark_kafka_eos.observe.query_metrics import QUERY_METRICS
from spark_kafka_eos.tools.operators.cluster_metrics import CLUSTER_METRICS
from tests.pages import ROOT

DASHBOARD = json.loads((ROOT / "conf" / "grafana-dashboard.json").read_text())
ALL_RULES = [
    rule
    for group in yaml.safe_load((ROOT / "conf" / "prometheus-alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
RULES = [rule for rule in ALL_RULES if "alert" in rule]
RECORDED = [rule for rule in ALL_RULES if "record" in rule]  # for the alerts' expressions
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
OF_PROMETHEUS = {"job", "instance"}  # labels that every scraped series has


def series(metric: Metric) -> dict[str, set[str]]:
    """The series of a metric by name, with their labels."""
    labels = {*metric.labels, *OF_PROMETHEUS}
    if metric.kind != "histogram":
        return {metric.name: labels}
    return {f"{metric.name}_bucket": labels | {"le"}, f"{metric.name}_sum": labels, f"{metric.name}_count": labels}


KNOWN = {name: labels for metric in (*QUERY_METRICS, *CLUSTER_METRICS) for name, labels in series(metric).items()}
KNOWN |= {rule["record"]: {"query", *OF_PROMETHEUS} for rule in RECORDED}


def selectors(expression: str) -> list[Any]:
    """The selectors of a PromQL expression; Grafana's variables stand for what it puts there."""
    found: list[Any] = []

    def visit(node: object) -> None:
        if isinstance(node, VectorSelector):
            found.append(node)

    promql_parser.walk(promql_parser.parse(expression.replace("$__rate_interval", "5m")), visit)
    return found


def named(expression: str) -> set[str]:
    return {selector.name for selector in selectors(expression)}


def labels_after(words: str, expression: str) -> set[str]:
    lists = re.findall(rf"\b(?:{words})\s*\(([\w, ]*)\)", expression)
    return {label.strip() for found in lists for label in found.split(",")} - {""}


def check(expression: str) -> None:
    """Every metric and label is there."""
    found = selectors(expression)
    assert found
    for selector in found:
        assert selector.name in KNOWN
        assert {matcher.name for matcher in selector.matchers.matchers} <= KNOWN[selector.name]
    available = set().union(*(KNOWN[selector.name] for selector in found))
    assert labels_after("by|without|on|ignoring|group_left", expression) <= available


@pytest.mark.parametrize(("title", "expression", "legend"), QUERIES)
def test_a_panels_expression_names_metrics_and_labels_that_there_are(title, expression, legend):
    check(expression)
    kept = set().union(*(KNOWN[name] for name in named(expression)))
    if (grouped := labels_after("by", expression)) and not expression.startswith("topk"):
        kept = grouped
    kept -= labels_after("without", expression)
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= kept


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_names_metrics_and_labels_that_there_are(rule):
    check(rule["expr"])
    available = set().union(*(KNOWN[name] for name in named(rule["expr"])))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= available
    assert rule["labels"]["severity"] in ("page", "ticket")


@pytest.mark.parametrize("rule", RECORDED, ids=lambda rule: rule["record"])
def test_what_is_recorded_for_alerts_is_made_of_metrics_that_there_are_and_used(rule):
    check(rule["expr"])
    assert any(rule["record"] in named(alert["expr"]) for alert in RULES)


def test_every_alert_has_its_section_in_the_runbook_and_every_section_its_alert():
    alerts = [rule["alert"] for rule in RULES]
    assert sorted(alerts) == sorted(re.findall(r"^### (KafkaEos(?!Error\b)\w+)$", RUNBOOK, re.MULTILINE))
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_every_metric_is_on_the_dashboard():
    shown = set().union(*(named(expression) for _, expression, _ in QUERIES))
    variables = " ".join(variable.get("definition", "") for variable in DASHBOARD["templating"]["list"])
    missing = [
        metric.name
        for metric in (*QUERY_METRICS, *CLUSTER_METRICS)
        if not shown & series(metric).keys() and metric.name not in variables
    ]
    assert missing == []


def test_the_dashboards_variables_are_filled_from_labels_that_there_are():
    known = {"datasource"}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert match is not None
            check(match[1])
            assert match[2] in KNOWN[selectors(match[1])[0].name]
        known.add(variable["name"])
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(PANELS)))
    assert used <= known


def test_the_panels_do_not_overlap_and_fit_the_grid():
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in DASHBOARD["panels"]):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(
    "expression",
    [
        "kafka_eos_no_such_metric > 0",
        'kafka_eos_kafka_up{query="x"} == 0',
        "sum by (query, key) (kafka_eos_lag_offsets)",
        "rate(kafka_eos_step_duration_seconds[5m])",
    ],
)
def test_a_metric_or_label_that_is_not_there_is_noticed(expression):
    with pytest.raises(AssertionError):
        check(expression)
