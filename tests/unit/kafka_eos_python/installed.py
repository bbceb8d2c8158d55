"""An environment with `kafka-eos-python` of this checkout, as pip installs it, and a PySpark that says what it sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pages import ROOT

# In the place of Spark's daemon: it says what it sees, then does what its input says, line by line.
DAEMON = """
import json, os, resource, signal, sys
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: os._exit(43))
    umask = os.umask(0); os.umask(umask)
    print(json.dumps({
        "argv": sys.argv[1:], "file": sys.argv[0], "environment": dict(os.environ), "folder": os.getcwd(),
        "group": os.getpgid(0), "umask": umask,
        "ignored": sorted(n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN),
        "interrupt": str(signal.getsignal(signal.SIGINT)), "blocked": sorted(signal.pthread_sigmask(0, [])),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
        "path": sys.path, "main": __spec__.name, "orig": sys.orig_argv, "hash": hash("a"),
        "parent": os.getppid(), "pid": os.getpid(), "imported": "pyspark.worker" in sys.modules,
    }), flush=True)
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
    print("end of input", file=sys.stderr)
"""
PLANNER = ["-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
_OF_THIS_PROCESS = {"OPENBLAS_NUM_THREADS", "PYTHONPATH", "PYTEST_CURRENT_TEST"}
OF_SPARK = {"PYTHONUNBUFFERED": "YES", "PYTHONHASHSEED": "0"}


def environment(folder: Path) -> Path:
    """Make an environment in which this checkout is installed, and what this Python has. Returns its script."""
    commands = folder / "bin"
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    commands.mkdir(parents=True)
    packages.mkdir(parents=True)
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    (commands / "python3").symlink_to(base)
    (folder / "pyvenv.cfg").write_text(f"home = {base.parent}\ninclude-system-site-packages = false\n")
    (packages / "installed.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    script = commands / "kafka-eos-python"
    script.write_text((ROOT / "kafka_eos_python" / "bin" / "kafka-eos-python").read_text())
    script.chmod(0o755)
    return script


def telling_pyspark(folder: Path, **modules: str) -> str:
    """A folder with a PySpark that says what it sees, and without the packages that take long to import."""
    texts = {
        "pyspark/__init__.py": "",
        "pyspark/daemon.py": DAEMON,
        "pyspark/worker.py": "",
        "pandas.py": "",
        "pyarrow.py": "",
    }
    for name, text in (texts | {f"{name}.py": text for name, text in modules.items()}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


class Process:
    """A process as Spark starts one, by the script. `seen` is what it says of itself."""

    def __init__(
        self, script: Path, arguments: Sequence[str], variables: Mapping[str, str | None], cwd: Path | None
    ) -> None:
        given = {name: value for name, value in os.environ.items() if name not in _OF_THIS_PROCESS}
        given |= {name: value for name, value in {**OF_SPARK, **variables}.items() if value is not None}
        self.popen = subprocess.Popen(
            [script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=given,
            cwd=cwd,
            text=True,
        )
        line = self._output.readline()
        self.seen: dict[str, Any] = json.loads(line) if line else {}

    @property
    def _output(self) -> Any:
        assert self.popen.stdout is not None
        return self.popen.stdout

    def do(self, statement: str) -> str:
        """Have the process run a statement; returns the line that it says."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(statement + "\n")
        self.popen.stdin.flush()
        return str(self._output.readline())

    def kill(self) -> None:
        """Kill the process that this one has started: the launcher, if it stands in for another one."""
        self.popen.kill()
        self.popen.communicate(timeout=30)

    def end(self) -> tuple[int, str]:
        """Close its input; returns exit code and what it wrote to its standard error."""
        _, said = self.popen.communicate(timeout=30)
        return self.popen.returncode, said
