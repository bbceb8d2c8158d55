"""The table of latencies in real time: ours first, and how many times another copy's these are."""

from lab.bench.figures import Point, Sweep
from lab.bench.real_time_figures import latencies


def test_each_copy_has_its_quantiles_at_each_rate_and_our_ratio_to_them():
    copies = {"kafka-eos": [10.0, 11.0, 14.0], "Kafka Streams, 100 ms": [50.0, 55.0, 56.0]}
    points = [
        Point.of(f"{quantile}, {copy}", 200, [factor * run for run in runs])
        for quantile, factor in (("p50", 1), ("p99", 2))
        for copy, runs in copies.items()
    ]
    points.append(Point.of("p50, kafka-eos", 1_000, [20]))
    measured = Sweep(
        title="", x="records/s", y="ms", points=tuple(points), settings={"rounds": 3}, panels=("p50", "p99")
    )
    table = latencies(measured)
    assert table.headings == ("ms", "200 records/s", "ours to it", "1,000 records/s", "ours to it")
    assert table.rows == (
        ("p50: kafka-eos", "11.0 (10.0-14.0)", "", "20.0", ""),
        ("p50: Kafka Streams, 100 ms", "55.0 (50.0-56.0)", "0.20 ×", "", ""),
        ("p99: kafka-eos", "22.0 (20.0-28.0)", "", "", ""),
        ("p99: Kafka Streams, 100 ms", "110 (100-112)", "0.20 ×", "", ""),
    )
    assert table.rounds == 3
