"""Five minutes of faults of every kind, and nothing lost, doubled, torn, visible that was aborted, or left hanging."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lab.commands.chaos import chaos
from lab.soak.queries import MIRROR, STATEFUL, STATELESS
from lab.soak.schedule import FaultKind

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_600)]

# Pieces of half an hour. Two of the queries' own ways are an hour of the sink, of foreachBatch and of arrow_stream; all
# together write 10^8 records through faults.
MINUTES, RATE = 30, 5_000
PIECES = [("own", 0), ("own", 1), ("own", 2), ("driver", 0), ("executors", 0), ("arrow", 0)]


def test_five_minutes_of_faults_leave_all_outputs_exactly_once(tmp_path: Path, kafka_version: str) -> None:
    arguments = ["soak", "--minutes", "5", "--kafka-version", kafka_version, "--output", str(tmp_path)]
    result = CliRunner().invoke(chaos, arguments)
    print(result.output)
    assert result.exit_code == 0, result.output
    assert "lost 0, duplicated 0, torn 0, aborted visible 0, hanging 0" in result.output
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["kinds"].keys() == {kind.value for kind in FaultKind}
    assert found["aborted"] > 0
    assert {side["name"]: side["lost"] > 0 for side in found["sides"]} == {
        STATELESS: False,
        STATEFUL: False,
        MIRROR: True,
    }
    for side in found["sides"]:
        assert side["outcome"]["batches"] > 10
        assert side["outcome"]["found"] == side["outcome"]["expected"] > 1_000
    assert sum(side["drivers"] for side in found["sides"]) > len(found["sides"]), "killed ones were restarted"
    assert (tmp_path / "soak.html").stat().st_size > 10_000


@pytest.mark.parametrize(("way", "piece"), PIECES)
def test_hours_of_faults_leave_what_each_way_writes_exactly_once(
    tmp_path: Path, kafka_version: str, way: str, piece: int, cell
) -> None:
    """One broker for the source: the rate is what counts."""
    arguments = ["--minutes", str(MINUTES), "--rate", str(RATE), "--brokers", "1", "--way", way]
    folder = ["--kafka-version", kafka_version, "--seed", str(piece), "--output", str(tmp_path)]
    result = CliRunner().invoke(chaos, ["soak", *arguments, *folder])
    print(result.output)
    assert result.exit_code == 0, result.output
    assert "lost 0, duplicated 0, torn 0, aborted visible 0, hanging 0" in result.output
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["kinds"].keys() == {kind.value for kind in FaultKind}
    assert found["aborted"] > 0
    records = sum(side["outcome"]["found"] for side in found["sides"])
    cell(f"soak, {way}", f"piece {piece}", "records", f"{records:,}")
    assert records > RATE * 60 * MINUTES, "the two copies alone have twice as many"
