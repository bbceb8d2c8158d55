"""Known vulnerabilities of pinned requirements, by pip-audit. Exit code 0: none; 1: some; 2: nobody could be asked.

Usage: audit.py requirements-dev.txt
"""

import json
import subprocess
import sys
from collections.abc import Sequence


def judge(output: str, errors: str) -> tuple[int, str]:
    """The exit code and what to say, from what pip-audit wrote in its JSON format and to standard error."""
    try:
        checked = [each for each in json.loads(output)["dependencies"] if "vulns" in each]
    except (json.JSONDecodeError, KeyError):
        checked = []
    if not checked:
        reason = (errors.strip().splitlines() or ["pip-audit wrote nothing"])[-1]
        return 2, f"NOT AUDITED: no advisory service answered, so nothing is known about any version.\n{reason}"
    found = [
        f"{each['name']} {each['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no release'}"
        for each in checked
        for known in each["vulns"]
    ]
    return (1, "\n".join(found)) if found else (0, f"no known vulnerability in {len(checked)} packages")


def main(arguments: Sequence[str]) -> None:
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--format",
        "json",
        "--disable-pip",
        "--require-hashes",
        "--timeout",
        "30",
    ]
    done = subprocess.run([*command, "-r", *arguments], check=False, capture_output=True, text=True)
    code, text = judge(done.stdout, done.stderr)
    print(text)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
