"""Which Python Spark uses, and what is found in the answer of each."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from packaging.requirements import Requirement

from spark_kafka_eos.preflight.findings import Severity
from spark_kafka_eos.tools.doctor.facts import Imported, Interpreter, Silent, version_of
from spark_kafka_eos.tools.doctor.pythons import (
    CONNECTOR,
    EXTRAS,
    MODULES,
    OLDEST_PYTHON,
    PYSPARK,
    REQUIREMENTS,
    Use,
    commands,
    extras_together,
    findings,
    to_use,
    together,
    variables,
)
from tests.pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = {
    "google-crc32c": "1.9.0",
    "kafka-python": "3.0.12",
    "numpy": "2.4.6",
    "pandas": "2.3.3",
    "pyarrow": "26.0.1",
    PYSPARK: "4.3.0",
    CONNECTOR: "0.2.0",
    "pyspark-kafka-eos": "",
}
FIT = Interpreter(
    executable="/env/bin/python",
    version=(3, 11, 7),
    host="here",
    daemon=1,
    modules={name: Imported(version=version, file=f"/site/{name}/__init__.py") for name, version in VERSIONS.items()},
)
CURE = "Run: export PYSPARK_PYTHON=/env/bin/python"


def having(**modules: Imported) -> Interpreter:
    """A fit Python, but for these modules, by distribution with `_` for `-`."""
    return replace(FIT, modules={**FIT.modules, **{name.replace("_", "-"): found for name, found in modules.items()}})


def wrong(answer: Interpreter | Silent) -> list[tuple[Severity, str, str, str]]:
    found = findings("python3", answer, cure=CURE)
    return [(each.severity, each.subject, each.found, each.action) for each in found if each.severity != Severity.OK]


# -- who is started


@pytest.mark.parametrize(
    ("environment", "settings", "named"),
    [
        ({}, {}, ("python3", "python3", "python3")),
        ({"PYSPARK_PYTHON": "/a"}, {}, ("/a", "/a", "/a")),
        ({"PYSPARK_PYTHON": "/a", "PYSPARK_DRIVER_PYTHON": "/b"}, {}, ("/b", "/b", "/a")),
        ({"PYSPARK_DRIVER_PYTHON": "jupyter"}, {}, ("jupyter", "jupyter", "python3")),
        ({"PYSPARK_PYTHON": ""}, {}, ("python3", "python3", "python3")),
        ({"PYSPARK_PYTHON": "/a"}, {"spark.pyspark.python": "/c"}, ("/c", "/a", "/c")),
        ({}, {"spark.pyspark.python": "/c", "spark.pyspark.driver.python": "/d"}, ("/d", "python3", "/c")),
        ({"PYSPARK_DRIVER_PYTHON": "/b"}, {"spark.pyspark.python": "/c"}, ("/c", "/b", "/c")),
    ],
)
def test_settings_name_the_python_of_programs_and_functions_but_only_variables_that_of_the_format(
    environment, settings, named
):
    assert commands(environment, settings) == dict(zip((Use.PROGRAM, Use.FORMAT, Use.FUNCTIONS), named, strict=True))


def test_the_cure_unsets_the_variables_that_name_another_python():
    assert to_use("/my env/bin/python", {}) == "Run: export PYSPARK_PYTHON='/my env/bin/python'"
    environment = {"PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_DRIVER_PYTHON_OPTS": "lab", "PYSPARK_PYTHON": "/a"}
    assert to_use("/a", environment) == (
        "Run: unset PYSPARK_DRIVER_PYTHON PYSPARK_DRIVER_PYTHON_OPTS; export PYSPARK_PYTHON=/a"
    )


@pytest.mark.parametrize(
    ("environment", "settings", "subjects"),
    [
        ({}, {}, []),
        ({"PYSPARK_PYTHON": "/a", "PYSPARK_DRIVER_PYTHON": "/a"}, {"spark.pyspark.python": "/a"}, []),
        ({"PYSPARK_DRIVER_PYTHON": "python3"}, {}, []),
        ({"PYSPARK_DRIVER_PYTHON": "jupyter"}, {}, ["PYSPARK_DRIVER_PYTHON"]),
        ({"PYSPARK_PYTHON": "/a", "PYSPARK_DRIVER_PYTHON": "/b"}, {}, ["PYSPARK_DRIVER_PYTHON"]),
        ({}, {"spark.pyspark.python": "/a"}, ["spark.pyspark.python"]),
        ({"PYSPARK_PYTHON": "/a"}, {"spark.pyspark.driver.python": "/b"}, ["spark.pyspark.driver.python"]),
    ],
)
def test_a_setting_that_data_sources_do_not_use_and_a_python_of_the_driver_only_are_warnings(
    environment, settings, subjects
):
    found = list(variables(environment, settings))
    assert [each.subject for each in found] == subjects
    assert {each.severity for each in found} <= {Severity.WARNING}
    assert all(each.action.startswith("Run: ") for each in found)


# -- one Python


def test_a_python_with_everything_is_shown_with_what_it_is_for_its_versions_and_extras():
    python = replace(FIT, optional=frozenset({"fsspec", "opentelemetry-sdk"}))
    version, packages, spark = findings("python3", python, uses=[Use.PROGRAM, Use.FORMAT], cure=CURE)
    assert {version.severity, packages.severity, spark.severity} == {Severity.OK}
    assert version.found == "3.11.7, /env/bin/python; for spark-submit, format('kafka-eos')"
    assert "kafka-python 3.0.12, numpy 2.4.6" in packages.found
    assert packages.found.endswith("spark-kafka-eos 0.2.0; extras: fsspec, otel")
    assert spark.found == "4.3.0, /site/pyspark/__init__.py"


def test_a_program_that_is_not_python_is_an_error_and_nothing_else_is_said_of_it():
    reason = "is not Python: exit code 1"
    assert wrong(Silent(reason=reason)) == [(Severity.ERROR, "python3", reason, CURE)]


def test_packages_that_are_missing_or_broken_are_named_in_one_error():
    python = having(
        pyarrow=Imported(error="not installed"),
        numpy=Imported(error="ImportError: libopenblas.so"),
        pyspark_kafka_eos=Imported(error="ImportError: format('kafka-eos') runs on …"),
    )
    said = "lacks numpy (ImportError: libopenblas.so), pyarrow (not installed)"
    assert wrong(python) == [(Severity.ERROR, "packages of python3", said, CURE)]


def test_the_missing_connector_is_an_error():
    python = having(spark_kafka_eos=Imported(error="not installed"))
    assert wrong(python) == [(Severity.ERROR, "packages of python3", "lacks spark-kafka-eos (not installed)", CURE)]


@pytest.mark.parametrize(
    ("package", "version", "severity", "supported"),
    [
        ("kafka-python", "3.0.11", Severity.ERROR, "kafka-python 3.0.12 or later, below 4"),
        ("kafka-python", "4.0.0", Severity.WARNING, "kafka-python 3.0.12 or later, below 4"),
        ("pandas", "3.0.0", Severity.WARNING, "pandas 2.2 or later, below 3"),
        ("pyarrow", "18.1.0", Severity.ERROR, "pyarrow 19 or later"),
    ],
)
def test_a_package_below_the_lowest_version_is_an_error_and_one_above_the_highest_a_warning(
    package, version, severity, supported
):
    python = replace(FIT, modules={**FIT.modules, package: Imported(version=version)})
    (found,) = (each for each in findings("python3", python, cure=CURE) if each.severity != Severity.OK)
    assert (found.severity, found.found) == (severity, f"has {package} {version}")
    assert found.meaning == f"Supported: {supported}"
    assert found.action == "Run: /env/bin/python -m pip install --upgrade spark-kafka-eos"


@pytest.mark.parametrize(("package", "version"), [("kafka-python", "3.0.12"), ("pandas", "2.9"), ("numpy", "")])
def test_versions_at_the_bounds_and_an_unknown_one_are_no_finding(package, version):
    assert wrong(replace(FIT, modules={**FIT.modules, package: Imported(version=version)})) == []


@pytest.mark.parametrize(("version", "severities"), [((3, 10, 14), [Severity.ERROR]), ((3, 11, 0), [])])
def test_a_python_before_3_11_is_an_error(version, severities):
    assert [severity for severity, *_ in wrong(replace(FIT, version=version))] == severities


def test_without_pyspark_the_format_is_not_a_second_error():
    python = having(pyspark=Imported(error="not installed"), pyspark_kafka_eos=Imported(error="ImportError: …"))
    ((severity, subject, found, _),) = wrong(python)
    assert (severity, subject, found) == (Severity.ERROR, "PySpark of python3", "not installed")


def test_a_pyspark_before_3_5_is_an_error_and_one_before_4_lacks_the_format_only():
    lacks = Imported(error="ImportError: format('kafka-eos') needs PySpark 4.0 or later, but this is 3.5.8")
    assert (Severity.ERROR, "PySpark of python3", "3.4.4", CURE) in wrong(having(pyspark=Imported(version="3.4.4")))
    ((severity, subject, _, action),) = wrong(having(pyspark=Imported(version="3.5.8"), pyspark_kafka_eos=lacks))
    assert (severity, subject) == (Severity.WARNING, "format('kafka-eos') in python3")
    assert action.startswith("Use TransactionalWriter")


def test_a_format_that_cannot_be_imported_although_everything_is_there_is_an_error():
    python = having(pyspark_kafka_eos=Imported(error="SyntaxError: invalid syntax"))
    assert wrong(python) == [(Severity.ERROR, "format('kafka-eos') in python3", "SyntaxError: invalid syntax", CURE)]


# -- several


def test_one_python_is_not_compared():
    assert list(together({"python3": FIT})) == []


def test_pythons_alike_agree_whatever_their_patch_release():
    found = list(together({"/a": FIT, "/b": replace(FIT, version=(3, 11, 9))}))
    assert [(each.severity, each.found) for each in found] == [
        (Severity.OK, "3.11"),
        (Severity.OK, "0.2.0"),
        (Severity.OK, "4.3.0"),
    ]


def test_another_minor_version_of_python_another_connector_and_another_pyspark_are_errors():
    other = replace(
        having(spark_kafka_eos=Imported(version="0.1.0"), pyspark=Imported(version="4.2.0")), version=(3, 12, 1)
    )
    found = list(together({"/a": FIT, "/b": other, "/c": FIT}))
    assert {each.severity for each in found} == {Severity.ERROR}
    assert [each.found for each in found] == [
        "3.11: /a, /c; 3.12: /b",
        "0.1.0: /b; 0.2.0: /a, /c",
        "4.2.0: /b; 4.3.0: /a, /c",
    ]


def test_a_connector_that_is_missing_in_one_is_not_compared():
    found = {
        each.subject: each.severity
        for each in together({"/a": FIT, "/b": having(spark_kafka_eos=Imported(error="no"))})
    }
    assert found["versions of spark-kafka-eos"] is Severity.OK


def test_an_extra_that_only_some_have_is_a_warning():
    with_aws = replace(FIT, optional=frozenset({"aws-msk-iam-sasl-signer-python", "fsspec"}))
    with_both = replace(with_aws, optional=with_aws.optional | {"gssapi"})
    found = list(extras_together({"/a": with_both, "/b": with_aws}))
    assert [(each.severity, each.subject, each.found) for each in found] == [
        (Severity.WARNING, "extra kerberos", "not installed for /b")
    ]


# -- the tables


def test_the_supported_versions_are_those_of_the_project():
    queries = {"rich", "typer"}  # the command line's
    asked = {(each := Requirement(text)).name: each.specifier for text in PROJECT["dependencies"]}
    assert REQUIREMENTS.keys() == asked.keys() - queries
    for name, needed in REQUIREMENTS.items():
        bounds = {spec.operator: version_of(spec.version) for spec in asked[name]}
        assert bounds == {">=": needed.lowest} | ({"<": needed.below} if needed.below else {}), name
    assert PROJECT["requires-python"] == f">={'.'.join(map(str, OLDEST_PYTHON))}"


def test_each_extra_is_one_of_the_projects_and_has_the_package():
    for extra, package in EXTRAS.items():
        assert package in {Requirement(text).name for text in PROJECT["optional-dependencies"][extra]}


def test_what_spark_imports_to_find_the_format_is_asked_for():
    assert set(MODULES) == set(VERSIONS)
    assert MODULES["pyspark-kafka-eos"].startswith("pyspark_")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("4.3.0", (4, 3, 0)), ("4.3.0.dev1", (4, 3, 0)), ("3.5.1rc2", (3, 5, 1)), ("19", (19,)), ("", ()), ("x", ())],
)
def test_a_version_is_the_numbers_that_it_begins_with(text, numbers):
    assert version_of(text) == numbers
