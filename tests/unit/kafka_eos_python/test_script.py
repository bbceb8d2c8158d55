"""The script `kafka-eos-python`: how it is found, and what it runs where nothing is forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from kafka_eos_python import beside
from tests.pages import ROOT
from tests.unit.kafka_eos_python.installed import environment


@pytest.fixture(scope="module")
def script(tmp_path_factory) -> Path:
    return environment(tmp_path_factory.mktemp("environment"))


def ask(script: Path | str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [script, *arguments], input="in", capture_output=True, text=True, check=False, env=os.environ | variables
    )


def test_spark_of_pip_is_imported_from_site_packages(script):
    home = Path(pyspark.__path__[0])
    archives = [*home.glob("python/lib/*.zip"), *home.glob("jars/spark-core_*.jar")]
    assert len(archives) == 3
    path = os.pathsep.join([*map(str, archives), "/job"])
    program = "import os, pyspark; print(pyspark.__file__, os.environ['PYTHONPATH'])"
    assert ask(script, "-c", program, PYTHONPATH=path).stdout == f"{pyspark.__file__} /job\n"


def test_arguments_input_exit_code_and_variables_are_those_of_the_plain_python(script):
    program = "import os, sys; print(sys.argv[1:], sys.stdin.read(), os.environ['PYTHONHASHSEED']); sys.exit(7)"
    done = ask(script, "-c", program, "a b", "-x", PYTHONHASHSEED="0")
    assert (done.returncode, done.stdout) == (7, "['a b', '-x'] in 0\n")
    flags = "import sys; print(sys.flags.ignore_environment, sys.flags.safe_path, sys.executable)"
    python = script.with_name("python3")
    assert ask(script, "-c", flags).stdout == f"0 {sys.flags.safe_path} {python}\n"


def test_it_is_found_by_name_and_through_a_link(script, tmp_path):
    path = f"{script.parent}{os.pathsep}{os.environ['PATH']}"
    assert ask("kafka-eos-python", "-c", "print(1)", PATH=path).stdout == "1\n"
    (tmp_path / "linked").symlink_to(script)
    assert ask(tmp_path / "linked", "-c", "print(2)").stdout == "2\n"


def test_without_a_python_it_says_so(tmp_path):
    script = tmp_path / "kafka-eos-python"
    script.write_text((ROOT / "kafka_eos_python" / "bin" / "kafka-eos-python").read_text())
    script.chmod(0o755)
    done = ask(script, "-c", "print(1)", PATH="/nowhere")
    assert (done.returncode, done.stderr) == (127, "kafka-eos-python: no python3 beside it or in the PATH\n")


def test_a_python_without_the_script_is_used_as_it_is(tmp_path, script):
    assert beside(str(script.with_name("python3"))) == str(script)
    assert beside(str(tmp_path / "python3")) == str(tmp_path / "python3")


def test_its_launcher_imports_next_to_nothing(script):
    program = "import sys; before = set(sys.modules)\nfrom kafka_eos_python import forked, launcher, place\n"
    program += "print(*set(sys.modules) - before)"
    done = subprocess.run(
        [script.with_name("python3"), "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    others = {name for name in done.stdout.split() if not name.startswith("kafka_eos_python")}
    assert others == {"__future__", "_socket"}, "each of Spark's processes waits for it"
