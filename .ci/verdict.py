"""Fail a run whose tests were skipped, or that had none with a broker or Spark: green must mean proven."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

cases = ET.parse(Path(sys.argv[1])).findall(".//testcase")
names = [f"{case.get('classname')}.{case.get('name')}" for case in cases]
skipped = [name for name, case in zip(names, cases, strict=True) if case.find("skipped") is not None]
missing = [suite for suite in ("broker", "spark") if not any(name.startswith(f"tests.{suite}.") for name in names)]
if skipped:
    sys.exit("skipped, so nothing is proven:\n  " + "\n  ".join(skipped))
if missing:
    sys.exit(f"no test ran of tests/{' and tests/'.join(missing)}")
print(f"{len(cases)} tests ran, none was skipped")
