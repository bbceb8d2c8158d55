"""When each alert fires, and when not: promtool, Prometheus' own tool, runs tests/prometheus-alerts-test.yml.

Go builds promtool, in some minutes; without Go, or without its modules, the test is skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pages import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

GO = shutil.which("go")
PROMTOOL = "github.com/prometheus/prometheus/cmd/promtool"
VERSION = "v0.55.1"  # Prometheus 2.55
_IMPORT = f'//go:build tools\n\npackage tools\n\nimport _ "{PROMTOOL}"\n'


@pytest.fixture
def promtool(tmp_path: Path) -> Path:
    """The program, built in a module of its own: Prometheus' has replacements, which `go install` refuses."""
    if GO is None:
        pytest.skip("Go, which builds promtool, is not installed")
    program = tmp_path / "promtool"
    (tmp_path / "tools.go").write_text(_IMPORT)

    def go(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"GOTOOLCHAIN": "local"}
        return subprocess.run(
            [str(GO), *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    go("mod", "init", "alerts")
    if (fetched := go("get", f"{PROMTOOL}@{VERSION}")).returncode:
        pytest.skip(f"Go cannot get promtool's modules: {fetched.stderr.strip()[-200:]}")
    built = go("build", "-o", program, PROMTOOL)
    assert built.returncode == 0, built.stderr
    return program


def test_the_alerts_fire_when_they_should_and_only_then(promtool):
    rules = subprocess.run(
        [promtool, "test", "rules", ROOT / "tests/prometheus-alerts-test.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rules.returncode == 0, rules.stdout + rules.stderr
