"""What follows when a Job's pod has ended: conf/kubernetes/job.yaml's own rules, in each ending."""

from __future__ import annotations

import pytest
import yaml

from tests.kubernetes.job_rules import COMPLETE, REPLACE, Verdict, action, verdict
from tests.kubernetes.resources import Resource
from tests.pages import ROOT

SPEC = yaml.safe_load((ROOT / "conf" / "kubernetes" / "job.yaml").read_text())["spec"]
FENCED = Verdict(False, "PodFailurePolicy")


def ended(code: int, *, container: str = "spark", disrupted: bool = False) -> Resource:
    status: Resource = {"phase": "Failed" if code else "Succeeded"}
    status["containerStatuses"] = [{"name": container, "state": {"terminated": {"exitCode": code}}}]
    status["conditions"] = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else []
    return {"status": status}


@pytest.mark.parametrize(
    ("code", "follows"),
    [(0, COMPLETE), (1, REPLACE), (2, FENCED), (90, FENCED), (137, REPLACE), (143, REPLACE)],
)
def test_the_job_is_complete_or_failed_or_starts_its_driver_again_by_the_exit_code(code, follows):
    assert verdict(SPEC, [ended(code)]) == follows


def test_a_disrupted_driver_is_ignored_but_a_fenced_one_is_not_even_then():
    assert action(SPEC, ended(143, disrupted=True)) == "Ignore"
    assert action(SPEC, ended(90, disrupted=True)) == "FailJob"


def test_failures_count_up_to_the_limit_and_those_that_are_ignored_do_not():
    spec = SPEC | {"backoffLimit": 1}
    assert verdict(spec, [ended(1)]) == REPLACE
    assert verdict(spec, [ended(1), ended(143, disrupted=True)]) == REPLACE
    assert verdict(spec, [ended(1), ended(143, disrupted=True), ended(1)]) == Verdict(False, "BackoffLimitExceeded")


def test_a_rule_for_a_container_says_nothing_of_another_one():
    assert action(SPEC, ended(90, container="sidecar")) == "Count"


def test_a_rule_for_all_other_codes_is_met_by_those():
    rule = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1]}}
    spec = {"podFailurePolicy": {"rules": [rule]}}
    assert [action(spec, ended(code)) for code in (0, 1, 7)] == ["Count", "Count", "FailJob"]
