"""A namespace of Kubernetes on this machine: an API server, a kubelet whose pods are processes, a controller of Jobs.

None of it is Kubernetes' own code, which is in no registry of packages. What Spark asks of it is Spark's own client.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import secrets
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml
from cryptography import x509

from tests.certificates import issue
from tests.kubernetes.api import ADMINISTRATOR, Api
from tests.kubernetes.image import Image
from tests.kubernetes.job_controller import JobController
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.resources import Resource, Resources

NAMESPACE = "streams"


class Cluster:
    """As a context manager; needs root. `kubeconfig` is an administrator's."""

    def __init__(self, folder: Path, images: dict[str, Image]) -> None:
        assert os.geteuid() == 0, "containers and port 443 need root"
        self.folder, self.resources = folder, Resources(NAMESPACE)
        folder.mkdir()
        address = _free_address()
        self.url = f"https://{address}:443"
        names = [x509.DNSName("kubernetes.default.svc"), x509.IPAddress(ipaddress.ip_address(address))]
        certificates = issue(folder, names)
        administrator = secrets.token_urlsafe()
        tokens = {administrator: ADMINISTRATOR}
        self.api = Api(self.resources, address, certificates.broker_keystore, tokens)
        self.kubelet = Kubelet(self.resources, folder / "node", images, address, certificates.ca)
        self._jobs = JobController(self.resources)
        self._running = contextlib.ExitStack()
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.url, certificates.ca, administrator)))
        for account in ("default", "spark"):
            token = secrets.token_urlsafe()
            tokens[token] = account
            self.kubelet.tokens[account] = token
        self.resources.create(
            "serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        )

    def __enter__(self) -> Self:
        for part in (self.api, self.kubelet, self._jobs):
            self._running.enter_context(part)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def pods(self, labels: str = "") -> list[Resource]:
        return self.resources.listed("pods", labels)

    def evict(self, pod: str) -> None:
        """Do what an eviction does, or the drain of a node: mark the pod as disrupted, and delete it."""

        def disrupt(found: Resource) -> None:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
            found["status"].setdefault("conditions", []).append(condition)

        self.resources.change("pods", pod, disrupt)
        self.resources.delete("pods", pod)


def _free_address() -> str:
    """One of the loopback interface at which nothing listens on port 443, with 253 more after it for pods."""
    while True:
        address = f"127.{random.randint(1, 254)}.{random.randint(0, 255)}.1"
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind((address, 443))
            return address


def _kubeconfig(url: str, ca: Path, token: str) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "administrator", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "administrator", "namespace": NAMESPACE}}],
        "current-context": "here",
    }
