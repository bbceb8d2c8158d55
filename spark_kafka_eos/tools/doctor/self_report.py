"""What a Python says of itself, as JSON on its standard output.

The text of this file runs in other Pythons (`python -c`, or as a task of Spark), which may be older and lack every
package, this one, too. So it needs only the standard library (of Python 3.8 or later), and imports it where it is used.
"""

from __future__ import annotations


def report(modules: dict[str, str], optional: list[str]) -> dict[str, object]:
    """`modules`, by their distributions, are imported, because what is installed may be broken; of the distributions
    in `optional`, only the version is looked up. `facts.interpreter` reads the result.
    """
    import os
    import platform
    import sys

    return {
        "executable": sys.executable,
        "version": list(sys.version_info[:3]),
        "host": platform.node(),
        "daemon": os.getppid(),
        "modules": {distribution: _imported(name, distribution) for distribution, name in modules.items()},
        "optional": [name for name in optional if _installed(name) is not None],
    }


def _imported(name: str, distribution: str) -> dict[str, object]:
    import importlib
    import os
    import zipimport

    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever a broken package raises
        lacks = isinstance(error, ImportError) and error.name == name
        return {"error": "not installed" if lacks else f"{type(error).__name__}: {error}"}
    spec, file = module.__spec__, getattr(module, "__file__", None) or ""
    zipped = isinstance(getattr(spec, "loader", None), zipimport.zipimporter)
    cached = file if zipped else getattr(spec, "cached", None) or ""
    return {
        "version": str(getattr(module, "__version__", None) or _installed(distribution) or ""),
        "file": file,
        "zipped": zipped,
        "bytecode": cached.endswith(".pyc") and (zipped or os.path.exists(cached)),  # noqa: PTH110
        "error": "",
    }


def _installed(distribution: str) -> str | None:
    """Its version, None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    import json
    import sys

    if sys.path[:1] == [""]:
        del sys.path[0]  # the working directory, which is another one on an executor
    print(json.dumps(report(*json.loads(sys.argv[1]))))  # noqa: T201 - the answer
