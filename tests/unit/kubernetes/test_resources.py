"""Resources are kept, selected, watched and removed as Kubernetes' API server does it."""

from __future__ import annotations

import pytest

from tests.kubernetes.api import merged, patched, told
from tests.kubernetes.resources import Event, Key, Refused, Resources, selected

POD = {"metadata": {"name": "a", "labels": {"role": "executor", "id": "7"}}, "status": {"phase": "Running"}}


def config(name: str, *owned_by: str):
    metadata: dict[str, object] = {"name": name}
    if owned_by:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid} for uid in owned_by
        ]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}


@pytest.mark.parametrize(
    ("labels", "fields", "matches"),
    [
        ("", "", True),
        ("role=executor,id=7", "", True),
        ("role==driver", "", False),
        ("role!=driver", "", True),
        ("id in (6, 7),role", "", True),
        ("id notin (6, 7)", "", False),
        ("!inactive", "", True),
        ("inactive", "", False),
        ("", "metadata.name=a,status.phase=Running", True),
        ("", "status.phase=Failed", False),
    ],
)
def test_a_selector_matches_labels_and_fields(labels, fields, matches):
    assert selected(POD, labels, fields) is matches


def test_what_is_created_must_be_what_kubernetes_knows():
    with pytest.raises(Refused, match="dat") as refused:
        Resources("here").create("configmaps", config("a") | {"dat": {}})
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")


def test_a_name_is_given_once():
    resources = Resources("here")
    resources.create("configmaps", config("a"))
    with pytest.raises(Refused, match="already exists"):
        resources.create("configmaps", config("a"))


def test_what_is_removed_takes_along_what_it_owns():
    resources = Resources("here")
    owner = resources.create("configmaps", config("owner"))
    resources.create("configmaps", config("owned", owner["metadata"]["uid"]))
    resources.create("configmaps", config("other"))
    resources.delete("configmaps", "owner")
    assert [each["metadata"]["name"] for each in resources.listed("configmaps")] == ["other"]
    events, version = resources.events("configmaps", 0, 0)
    assert [(event.type, event.key.name) for event in events][-2:] == [("DELETED", "owner"), ("DELETED", "owned")]
    assert version == 5


def test_a_pod_that_is_deleted_stays_until_its_processes_have_ended():
    resources = Resources("here")
    spec = {"containers": [{"name": "a", "image": "b"}], "terminationGracePeriodSeconds": 7}
    resources.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
    assert resources.delete("pods", "a")["metadata"]["deletionGracePeriodSeconds"] == 7
    assert resources.has("pods", "a")
    resources.remove("pods", "a")
    assert not resources.has("pods", "a")


def test_a_watch_is_told_what_its_selector_came_to_match_and_what_it_no_longer_matches():
    def event(kind: str, value: str) -> Event:
        metadata = {"name": "a", "uid": "1", "labels": {"role": value}, "resourceVersion": "1"}
        return Event(kind, Key("pods", "a"), {"metadata": metadata})

    seen: set[str] = set()
    happened = [("ADDED", "x"), ("MODIFIED", "y"), ("MODIFIED", "y"), ("MODIFIED", "x"), ("DELETED", "x")]
    heard = [[each["type"] for each in told(event(*one), "role=y", "", seen)] for one in happened]
    assert heard == [[], ["ADDED"], ["MODIFIED"], ["DELETED"], []]


def test_a_json_patch_changes_what_its_paths_name():
    resource = {"metadata": {"labels": {"a/b": "1"}}, "list": [1, 2]}
    for step in (
        {"op": "test", "path": "/metadata/labels/a~1b", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"},
        {"op": "add", "path": "/metadata/labels/c", "value": "3"},
        {"op": "remove", "path": "/list/0"},
        {"op": "add", "path": "/list/-", "value": 3},
    ):
        patched(resource, step)
    assert resource == {"metadata": {"labels": {"a/b": "2", "c": "3"}}, "list": [2, 3]}
    with pytest.raises(Refused, match="is not"):
        patched(resource, {"op": "test", "path": "/metadata/labels/c", "value": "4"})


def test_a_merge_patch_replaces_adds_and_removes():
    resource = {"a": {"b": 1, "c": 2}, "d": 3}
    merged(resource, {"a": {"b": None, "e": 4}, "d": 5})
    assert resource == {"a": {"c": 2, "e": 4}, "d": 5}
