"""What is newer than what the tests use, and whether pyproject.toml allows it."""

from __future__ import annotations

from packaging.requirements import Requirement
from packaging.version import Version

from tests.unit.ci.test_verdict import ROOT, script

newest = script("newest")
LOCK = """\
pandas==2.3.3 \\
    --hash=sha256:00
pyarrow==25.0.0 ; python_version < "3.14" \\
    --hash=sha256:00
confluent-kafka[avro,json]==2.16.0
"""


def test_bounds_are_left_out_and_extras_kept():
    found = list(newest.overrides(ROOT / "pyproject.toml"))
    assert {"pandas", "pyarrow", "pyspark[connect,pipelines]", "confluent-kafka[avro,json,protobuf]"} <= set(found)
    assert not [each for each in found if "spark-kafka-eos" in each or set("<>=;") & set(each)]


def test_a_lock_has_a_version_for_each_name():
    assert newest.pins(LOCK) == {
        "pandas": Version("2.3.3"), "pyarrow": Version("25.0.0"), "confluent-kafka": Version("2.16.0"),
    }  # fmt: skip
    assert newest.pins((ROOT / "requirements-dev.txt").read_text())["pandas"] < Version("3")


def test_only_what_is_newer_is_news_and_it_is_said_whether_it_is_allowed():
    asked = {name: Requirement(text) for name, text in {
        "pandas": "pandas<3", "pyarrow": "pyarrow>=19", "confluent-kafka": "confluent-kafka", "other": "other",
    }.items()}  # fmt: skip
    found = newest.pins("pandas==3.1.1\npyarrow==25.0.0\nconfluent-kafka==2.16.1\nother==1")
    assert list(newest.news(asked, newest.pins(LOCK), found)) == [
        ["confluent-kafka", "2.16.0", "2.16.1", "yes"],
        ["pandas", "2.3.3", "3.1.1", "no: <3"],
    ]
