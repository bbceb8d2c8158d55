"""Rights are what the roles of an account's bindings give, and no more."""

from __future__ import annotations

import pytest
import yaml

from tests.kubernetes.rights import Action, allowed, rules_of
from tests.pages import ROOT

DOCUMENTS = list(yaml.safe_load_all((ROOT / "conf" / "kubernetes" / "rbac.yaml").read_text()))
ROLES, BINDINGS = ([each for each in DOCUMENTS if each["kind"] == kind] for kind in ("Role", "RoleBinding"))


@pytest.mark.parametrize(
    ("action", "may"),
    [
        (Action("create", "", "pods"), True),
        (Action("watch", "", "configmaps"), True),
        (Action("get", "", "secrets"), False),
        (Action("create", "", "pods/exec"), False),
        (Action("create", "apps", "pods"), False),
        (Action("escalate", "", "pods"), False),
        (Action("get", "batch", "jobs"), False),
    ],
)
def test_the_drivers_account_may_do_what_its_role_says(action, may):
    assert allowed(action, rules_of("spark", ROLES, BINDINGS)) is may


def test_another_account_may_do_nothing():
    assert not allowed(Action("get", "", "pods"), rules_of("default", ROLES, BINDINGS))


def test_a_star_is_every_name():
    assert allowed(Action("get", "", "pods"), [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
