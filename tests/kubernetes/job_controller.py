"""Starts the pods of Jobs, one at a time, and follows each Job's own rules when one has ended (job_rules.py).

It starts the next pod at once; Kubernetes' controller waits for 10 s, and twice as long after each further failure.
"""

from __future__ import annotations

import threading
from typing import Self

from tests.kubernetes.job_rules import Verdict, verdict
from tests.kubernetes.kubelet import ENDED
from tests.kubernetes.resources import Resource, Resources, now, owners

_LOOK_S = 0.2


class JobController:
    """As a context manager."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._ended: dict[str, list[Resource]] = {}  # by the Job's uid
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="jobs")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _follow(self) -> None:
        jobs_seen = pods_seen = 0
        while not self._closing.is_set():
            jobs, jobs_seen = self._resources.events("jobs", jobs_seen, _LOOK_S)
            for event in jobs:
                if event.type == "ADDED":
                    self._start_pod(event.resource)
            pods, pods_seen = self._resources.events("pods", pods_seen, 0)
            for event in pods:
                self._look(event.resource, gone=event.type == "DELETED")

    def _start_pod(self, job: Resource) -> None:
        name, template = job["metadata"]["name"], job["spec"]["template"]
        assert job["spec"].get("podReplacementPolicy") == "Failed", "a pod that is ending is not replaced here"
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"]}
        labels = template.get("metadata", {}).get("labels", {}) | {"batch.kubernetes.io/job-name": name}
        metadata = {"generateName": f"{name}-", "labels": labels, "ownerReferences": [owner | {"controller": True}]}
        self._resources.create(
            "pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        )

    def _look(self, pod: Resource, *, gone: bool) -> None:
        """Act once for each pod: when it has ended, or is gone without having ended, which is a failure."""
        jobs = {job["metadata"]["uid"]: job for job in self._resources.listed("jobs")}
        for uid in set(owners(pod)) & jobs.keys():
            ended = self._ended.setdefault(uid, [])
            known = {each["metadata"]["uid"] for each in ended}
            over = pod["status"]["phase"] in ENDED
            if pod["metadata"]["uid"] in known or not (over or gone):
                continue
            ended.append(pod if over else pod | {"status": pod["status"] | {"phase": "Failed"}})
            decided = verdict(jobs[uid]["spec"], ended)
            self._tell(jobs[uid]["metadata"]["name"], decided, ended)
            if decided.replace:
                self._start_pod(jobs[uid])

    def _tell(self, name: str, decided: Verdict, ended: list[Resource]) -> None:
        def change(job: Resource) -> None:
            failed = sum(pod["status"]["phase"] == "Failed" for pod in ended)
            job["status"] = {"failed": failed, "succeeded": len(ended) - failed}
            if not decided.replace:
                condition = {"type": "Failed" if decided.reason else "Complete", "status": "True"}
                job["status"]["conditions"] = [condition | {"reason": decided.reason, "lastTransitionTime": now()}]

        self._resources.change("jobs", name, change)
