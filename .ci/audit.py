"""Known vulnerabilities of pinned requirements, by pip-audit. Exit code 0: none; 1: some; 2: some were not looked up.

Usage: audit.py requirements-dev.txt
"""

import json
import subprocess
import sys
from collections.abc import Sequence


def judge(output: str, errors: str) -> tuple[int, str]:
    """The exit code and what to say, from what pip-audit wrote in its JSON format and to standard error."""
    try:
        packages = json.loads(output)["dependencies"]
    except (json.JSONDecodeError, KeyError):
        packages = []
    # pip-audit passes what its service does not know, or does not answer for.
    unasked = [each.get("skip_reason") or each["name"] for each in packages if "vulns" not in each]
    found = [
        f"{each['name']} {each['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no release'}"
        for each in packages
        for known in each.get("vulns", ())
    ]
    if not packages or unasked:
        reason = (unasked or errors.strip().splitlines()[-1:] or ["pip-audit wrote nothing"])[0]
        found.append(
            f"NOT AUDITED: no advisory service knew {len(unasked) or 'any'} of the packages; the first: {reason}"
        )
        return 2, "\n".join(found)
    return (1, "\n".join(found)) if found else (0, f"no known vulnerability in {len(packages)} packages")


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
