"""Spark's access to S3: Hadoop's S3A with the parts of the AWS SDK that it needs (the SDK's bundle has 600 MB)."""

from __future__ import annotations

import re
from pathlib import Path

from spark_kafka_eos.testing.jars import Bundle, Module, files
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "deploying.md").read_text()
_HADOOP, _SDK = "3.5.0", "2.35.4"  # PySpark 4.3's Hadoop, and the SDK that it was released with
_OF_SDK = (
    *("s3", "s3-transfer-manager", "sts", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol"),
    *("annotations", "apache-client", "checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth"),
    *("http-auth-aws", "http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi", "json-utils"),
    *("metrics-spi", "netty-nio-client", "profiles", "protocol-core", "regions", "retries", "retries-spi", "sdk-core"),
    *("third-party-jackson-core", "utils", "utils-lite"),
)
_MODULES = (
    ("org.apache.hadoop", "hadoop-aws", _HADOOP),
    *(("software.amazon.awssdk", name, _SDK) for name in _OF_SDK),
    ("software.amazon.eventstream", "eventstream", "1.0.1"),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ("org.reactivestreams", "reactive-streams", "1.0.4"),
    # The checkpoint file manager for stores whose streams can be aborted.
    ("org.apache.spark", "spark-hadoop-cloud_2.13", "4.1.1"),
)
S3A = Bundle(
    name="hadoop-aws",
    version=_HADOOP,
    modules=tuple(Module(organisation=of, name=name, revision=revision, alone=True) for of, name, revision in _MODULES),
)


def jars() -> list[Path]:
    """What Spark's class path needs for `s3a:`; downloaded first if necessary."""
    return files(S3A)


def settings(endpoint: str) -> dict[str, str]:
    """The page's settings of Spark, for the server at `host:port`. Credentials come from the environment, as
    PyArrow's do.
    """
    [block] = re.findall(r"^### In S3\n.*?^```properties\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    pairs = (line.split() for line in block.splitlines())
    return {name: value.replace("s3.example.com", endpoint).replace("https:", "http:") for name, value in pairs}
