"""`kafka-eos bench`: what the connector costs, beside what else there is. Each benchmark is a function that returns a
frozen value; cli_bench.py prints, plots and stores it.

    figures.py      medians, ratios, percentiles, the values that come out: pure
    machine.py      what it ran on
    alternating.py  sides in turn, round after round
    inputs.py       records in Kafka to read, and counting what was written
    lab.py          one session, one broker: what the sides share
    sides.py        who reads and writes: this connector, the built-in one, the recipe, librdkafka, Java
    java.py         Kafka's own perf tools
    spark_runs.py   source, read, sink, copy, and the sweep over shapes
    latency.py  memory.py  codec.py  transport.py  overhead.py  eos_performance.py   one benchmark each
    targets.py      the table of targets: every row with what runs it, what it must reach and whether it does
    plots.py  show.py    PNG; tables on a terminal and in Markdown

Fair means: both sides in one run on the same broker, Spark settings and checkpoint manager, alternating, after rounds
that are not measured; whole seconds from `start()` to the end of `awaitTermination()`; the output counted after every
run; ratios of medians. The built-in source runs with `kafka.fetch.max.wait.ms=10`, too: its default stalls each query
for about a second, and beating only that is nothing.
"""
