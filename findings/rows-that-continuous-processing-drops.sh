#!/usr/bin/env bash
# PySpark 4.3.0: with trigger(continuous=…), a sink written in Python gets no row, and each epoch counts as done.
#
# Guess (confidence 70 %): Spark refuses a Python data source's stream writer with continuous processing, as it refuses
# foreachBatch and sources in Python, or the writer gets the rows.
# Seen: the query starts, and is active without an exception. The tasks never call write(). But the driver calls commit()
# for each epoch, with a message for each partition, and Spark records the epoch in the checkpoint. With
# processingTime the same sink gets all rows.
# So everything that comes in while such a query runs is lost without an error, for the checkpoint says that it is
# written. A sink notices it only if it compares what its tasks wrote with what it commits: its messages are null.
#
# Needs Python 3.11 and Java 17. Installs pyspark 4.3.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0 pyarrow==26.0.1 pandas==3.0.6
cat > look.py <<'PY'
import os, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

os.environ["PYSPARK_PYTHON"] = sys.executable


class Lines(DataSource):
    """Counts what it is given, in files of a folder."""

    @classmethod
    def name(cls):
        return "lines"

    def streamWriter(self, schema, overwrite):
        return LinesWriter(self.options["path"])


class LinesWriter(DataSourceStreamWriter):
    def __init__(self, folder):
        self.folder = folder

    def write(self, rows):
        with open(f"{self.folder}/rows", "a") as file:
            file.writelines(f"{row.value}\n" for row in rows)
        return WriterCommitMessage()

    def commit(self, messages, batchId):
        with open(f"{self.folder}/commits", "a") as file:
            file.write(f"{batchId} {messages}\n")


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)
spark.dataSource.register(Lines)
print("PySpark 4.3.0; trigger: commits, messages of one, epochs in the checkpoint, rows that the sink got, exception")
for kind in ("processingTime", "continuous"):
    folder = Path(kind).absolute()
    folder.mkdir()
    source = spark.readStream.format("rate").option("rowsPerSecond", 20).option("numPartitions", 2).load()
    written = source.writeStream.format("lines").option("path", str(folder))
    query = written.option("checkpointLocation", str(folder / "c")).trigger(**{kind: "1 second"}).start()
    deadline = time.monotonic() + 120
    while len(lines(folder / "commits")) < 6:
        assert query.isActive and time.monotonic() < deadline, query.exception()
        time.sleep(0.1)
    commits, rows, error = lines(folder / "commits"), lines(folder / "rows"), query.exception()
    done = [file for file in (folder / "c" / "commits").iterdir() if not file.name.startswith(".")]
    query.stop()
    print(f"{kind}:", f"{len(commits)} or more;", commits[-1] + ";", f"{len(done)} or more;", len(rows), error)
    assert error is None and len(done) >= 5
    if kind == "processingTime":
        assert rows
    else:
        assert rows == [], "this has changed: the sink got no row"
PY
venv/bin/python look.py 2> errors.log || { cat errors.log; exit 1; }
