"""The job's transformation, apart from Kafka: which flights are late, how they are named, keyed and written."""

import json
import runpy

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_eos.testing.demo.flights import Flight, late_flights, payload
from spark_kafka_eos.testing.demo.run import JOB

pytestmark = pytest.mark.spark

build = runpy.run_path(str(JOB))["build"]

AIRLINES = {"UA": "United Air Lines Inc.", "B6": "JetBlue Airways"}


def flight(number: int, delay: int | None, *, carrier: str = "UA", origin: str = "EWR") -> Flight:
    return Flight(
        id=number,
        month=1,
        time_hour="2013-01-01T10:00:00Z",
        carrier=carrier,
        flight=1545,
        origin=origin,
        dest="IAH",
        dep_delay=delay,
    )


def built(spark: SparkSession, *flights: Flight, aborted: bool = False) -> DataFrame:
    rows = [(bytearray(payload(sent, aborted=aborted)),) for sent in flights]
    airlines = spark.createDataFrame(list(AIRLINES.items()), "carrier STRING, airline STRING")
    late: DataFrame = build(spark.createDataFrame(rows, "value BINARY"), airlines)
    return late


def test_late_flights_are_keyed_by_airport_and_carry_their_airlines_name(spark: SparkSession) -> None:
    found = built(spark, flight(1, 2), flight(2, 33, carrier="B6", origin="JFK"))
    united = (
        '{"id":1,"airport":"EWR","time_hour":"2013-01-01T10:00:00Z","carrier":"UA","airline":"United Air Lines Inc.",'
        '"flight":1545,"dest":"IAH","dep_delay":2,"aborted":false}'
    )
    jet_blue = (
        '{"id":2,"airport":"JFK","time_hour":"2013-01-01T10:00:00Z","carrier":"B6","airline":"JetBlue Airways",'
        '"flight":1545,"dest":"IAH","dep_delay":33,"aborted":false}'
    )
    expected = spark.createDataFrame([("EWR", united), ("JFK", jet_blue)], "key STRING, value STRING")
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_flights_on_time_early_or_cancelled_are_not_written(spark: SparkSession) -> None:
    assert built(spark, flight(1, 0), flight(2, -5), flight(3, None)).count() == 0


def test_a_flight_of_an_unknown_airline_is_kept_without_a_name(spark: SparkSession) -> None:
    (row,) = built(spark, flight(1, 9, carrier="XX")).collect()
    assert json.loads(row.value)["carrier"] == "XX"
    assert "airline" not in json.loads(row.value)


def test_the_mark_of_an_aborted_copy_is_passed_on_so_that_a_leak_would_show(spark: SparkSession) -> None:
    (row,) = built(spark, flight(1, 9), aborted=True).collect()
    assert json.loads(row.value)["aborted"] is True


def test_the_job_and_the_yardstick_agree(spark: SparkSession) -> None:
    flights = [flight(1, 2), flight(2, None), flight(3, 40, carrier="B6", origin="LGA"), flight(4, -1)]
    found = {row.key: json.loads(row.value) for row in built(spark, *flights).collect()}
    assert found == {value["airport"]: value for value in late_flights(flights, AIRLINES).values()}
