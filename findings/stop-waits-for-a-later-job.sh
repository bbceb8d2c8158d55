#!/usr/bin/env bash
# PySpark 4.3.0: query.stop() cancels a job that foreachBatch's threads run, but waits for one that they begin after that.
#
# Guess (confidence 75 %): once a query is stopped, Spark also cancels the jobs of its group that begin later, as
# SparkContext can since 4.0 (cancelJobGroupAndFutureJobs), or refuses them.
# Seen: foreachBatch's function runs a job of 20 s in a thread that inherits the query's job group
# (inheritable_thread_target), and waits for it. A job that runs when stop() is called is cancelled at once. One that
# begins a moment later runs to its end, and stop() returns only then. Its work is done, and the batch does not count as
# done: the next start runs it again. (In the function's own thread, such a job fails at once: Spark interrupts that one.)
# So a function that has several jobs run side by side, one after the other, is not stopped between two of them.
#
# Needs Python 3.11 and Java 17. Installs pyspark 4.3.0 in a temporary folder.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyspark==4.3.0
cat > look.py <<'PY'
import os, sys, threading, time
from pathlib import Path
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
SECONDS = 20
spark = (
    SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
)


def job(done):
    """A job of one task, which lasts for so many seconds and then leaves a file."""

    def task(rows):
        for _ in rows:
            time.sleep(SECONDS)  # the work
            Path(done).touch()
        return iter(())

    spark.sparkContext.parallelize([None], 1).mapPartitions(task).collect()


print("PySpark 4.3.0; a job of 20 s that begins: seconds that stop() took, whether the job ran to its end, batches done")
for when in ("before stop()", "after stop()"):
    folder = Path(when.split()[0]).absolute()
    folder.mkdir()
    running, query = threading.Event(), None

    def function(rows, number):
        running.set()
        while when == "after stop()" and (query is None or query.isActive):
            time.sleep(0.05)  # whether stop() was called, Spark can only be asked
        thread = threading.Thread(target=inheritable_thread_target(spark)(job), args=(str(folder / "done"),))
        thread.start()
        thread.join()
        if not query.isActive:
            raise RuntimeError("stopped")

    stream = spark.readStream.format("rate").load().writeStream.foreachBatch(function)
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert running.wait(60)
    while when == "before stop()" and not spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.05)  # whether a job runs, too
    began = time.monotonic()
    query.stop()
    took, is_done = time.monotonic() - began, (folder / "done").exists()
    commits = folder / "checkpoint" / "commits"
    batches = [file.name for file in commits.iterdir() if not file.name.startswith(".")] if commits.exists() else []
    print(f"{when}: {took:.0f} s, {is_done}, {batches}")
    assert not batches
    if when == "before stop()":
        assert took < SECONDS / 2 and not is_done
    else:
        assert took > SECONDS - 1 and is_done, "this has changed: the later job is cancelled, too"
PY
venv/bin/python look.py 2> errors.log || { cat errors.log; exit 1; }
