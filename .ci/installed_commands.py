"""The commands of a plain installation, without extras: what --help offers works, and the rest says what to install."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from spark_kafka_eos.tools.cli.main import COMMANDS

PROGRAM = Path(sys.executable).with_name("kafka-eos")
NOWHERE = ["--bootstrap-servers", "localhost:1"]
# A use of a command that needs no extra, which ends with a short error; of the others, an option that no command has.
FAILS = {
    "dead-letters": (3, ["count", "orders-dead", *NOWHERE]),
    "doctor": (3, NOWHERE),
    "explain": (2, ["nothing"]),
    "preflight": (3, [*NOWHERE, "--transactional-id", "orders", "--option", "topic=orders"]),
    "query": (3, ["list", *NOWHERE]),
    "trace": (2, ["nowhere"]),
    "transactions": (3, ["list", *NOWHERE]),
}


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([PROGRAM, *arguments], check=False, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


assert find_spec("lab") is None, "the laboratory is installed"
code, shown = run("--help")
assert code == 0, shown
for name, command in COMMANDS.items():
    if command.extra is None:
        assert run(name, "--help")[0] == 0, name
        expected, arguments = FAILS.get(name, (2, ["--no-such-option"]))
        code, shown = run(name, *arguments)
        assert code == expected, (name, code, shown)
    else:
        assert not command.extra.installed, f"{name} needs no extra"
        code, shown = run(name, "--help")
        assert code == 3, (name, code, shown)
        assert f'pip install "spark-kafka-eos[{command.extra.name}]"' in shown, shown
code, shown = run("explain", "LedgerRefused")  # of a page that is in the wheel
assert code == 0, shown
assert "kafka-eos query resolve" in shown, shown
print(f"a plain installation: {len(COMMANDS)} commands work, or say which extra to install")
