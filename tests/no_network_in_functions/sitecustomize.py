"""For a Python of Spark in which no function of a query reaches the network, as on Databricks' serverless compute.

Data sources still do: whether they may there depends on the network's policy. Put this folder first on the path.
"""

import sys
from types import FrameType

_RUNS_FUNCTIONS = "pyspark/worker.py"
_DATA_SOURCES = ("plan_data_source_read.py", "write_into_data_source.py")


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event != "socket.connect":
        return
    files = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    if any(file.endswith(_RUNS_FUNCTIONS) for file in files) and not any(
        file.endswith(_DATA_SOURCES) for file in files
    ):
        raise OSError(f"no function reaches the network here, but one connects to {arguments[1]}")


sys.addaudithook(_refuse)
