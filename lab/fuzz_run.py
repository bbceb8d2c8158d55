"""`python -m lab.fuzz_run TARGET FOLDER|FILE [libFuzzer's options]`: runs a target under atheris.

A separate module, because code whose coverage is measured must be imported after atheris.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["spark_kafka_eos", "kafka.protocol"]):
    from lab.fuzz import TARGETS


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
