#!/bin/sh
# Check what must be there before anything can be installed: Python >= 3.11 and Java >= 17. Prints the Python to use.
set -eu

fail() {
    printf 'error: %s\n' "$1" >&2
    exit 1
}

python=
for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or later is needed, tried: ${PYTHON:-python3 python3.13 python3.12 python3.11}. Install it, or name it: make PYTHON=/path/to/python3"
"$python" -c 'import ensurepip, venv' 2>/dev/null || fail "$python has no venv module. Install it (on Debian and Ubuntu: apt install python3-venv)."

java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
version=$("$java" -version 2>&1) || fail "Java 17 or later is needed, and $java does not run. Install a JDK or JRE, or set JAVA_HOME."
major=$(printf '%s\n' "$version" | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${major:-0}" -ge 17 ] || fail "Java 17 or later is needed, and $java is: $(printf '%s\n' "$version" | head -n 1). Set JAVA_HOME to another."

printf '%s\n' "$python"
