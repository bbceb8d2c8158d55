"""Jobs that are shipped to a cluster as docs/deploying.md says.

The page's commands run as they are there, except that `pip install` is replaced by links to what is installed here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from importlib.metadata import requires
from pathlib import Path

from spark_kafka_eos.testing.driver import Driver, spark_submit
from tests.pages import ROOT
from tests.standalone import bare_environment, install_package

PAGE = (ROOT / "docs" / "deploying.md").read_text()
_SMALL = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m"}


class Shipped:
    """A job that is shipped as the section of the page says, from `site`. `python` stands for `python3.11`."""

    def __init__(self, section: str, site: Path, python: Path | None = None) -> None:
        [text] = re.findall(rf"^### {section}\n(.*?)^##", PAGE, re.MULTILINE | re.DOTALL)
        blocks = [
            block.replace("\\\n", " ") for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        ]
        *self._before, self._command = blocks
        self._site, self._python = site, python

    def prepare(self) -> None:
        """Run what the section runs before the job, except what installs packages."""
        lines = [line for block in self._before for line in block.splitlines()]
        for line in lines:
            if not re.search(r" -m (venv|pip) ", line):
                environment = os.environ | {"GZIP": "-1"}  # larger, but in a third of the time
                subprocess.run(["bash", "-ec", self._here(line)], check=True, env=environment, timeout=120)

    def submit(
        self,
        url: str,
        bootstrap: str,
        topics: tuple[str, str],
        *arguments: str,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Driver:
        """Start the section's spark-submit on this cluster, with more arguments for the job, and more variables."""
        source, target = topics
        command = self._here(self._command).replace("spark://master:7077", url).replace("localhost:9092", bootstrap)
        words = shlex.split(command.replace("--from orders --to orders-copy", f"--from {source} --to {target}"))
        submit = words.index("spark-submit")
        job = next(number for number, word in enumerate(words) if word.startswith("jobs/"))
        settings = {**_SMALL, **(conf or {})}
        return Driver(
            ROOT / words[job],
            [*words[job + 1 :], *arguments],
            conf=[
                *words[submit + 1 : job],
                *(word for pair in settings.items() for word in ("--conf", "=".join(pair))),
            ],
            env=dict(word.split("=", 1) for word in words[:submit]) | {"SPARK_LOCAL_IP": "127.0.0.1", **(env or {})},
            log=self._site / "driver.log",
            submit=spark_submit(),
        )

    def _here(self, command: str) -> str:
        found = command.replace("/tmp/", f"{self._site}/").replace("/opt/", f"{self._site}/opt/")
        return found if self._python is None else found.replace("python3.11", str(self._python))


def packed(site: Path) -> Shipped:
    install_package(bare_environment(site / "environment", requires("spark-kafka-eos") or ()))
    shipped = Shipped("A packed environment", site)
    shipped.prepare()
    return shipped
