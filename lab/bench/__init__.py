"""`python -m lab bench`: measures the connector against alternatives. Each benchmark is a function that returns a
frozen value; commands/bench.py prints, plots and stores it.

    figures.py      results, medians, ratios, percentiles; pure
    steady_figures.py   the arithmetic and tables of steady state; pure
    machine.py      the machine and the versions of a run
    alternating.py  runs the sides in turn
    inputs.py       produces input, counts output
    lab.py          the session and the broker that the sides share
    apart.py        sessions with settings of their own, in processes of their own
    sides.py        the sides: this connector, the built-in one, the collect recipe, librdkafka, Java
    java.py         Kafka's own perf tools
    spark_runs.py   source, read, sink and copy, also with inputs of other shapes
    steady.py       micro-batches in steady state on plain settings, first batches, and each setting alone
    start.py  places.py   a fresh session to its first commit and first visible record, by where tasks run
    fresh_start.py  process_log.py  a fresh session's first batch by process
    footprint.py    the memory of all processes of a copy together
    start_figures.py    the tables of these; pure
    floor.py  ready_made.py  relayed.py  nothing.py   what a query takes if our own work takes no time
    checkpoint.py  slow_store.py    micro-batches by where their checkpoint is; an artificial object store
    latency.py  memory.py  codec.py  old_formats.py  registry.py  transport.py  overhead.py  isolation.py
    eos_performance.py  watched.py  with_table.py  one benchmark each
    real_time.py  copies.py     latency of copies that run on; real_time_figures.py is their table, pure
    request_metrics.py  what EOSPerformance prints with --print-metrics
    scale.py        costs by number of partitions, topics and append tasks; large_cluster.py is its broker in memory
    targets.py      the table of targets; pure
    campaign.py     runs all measurements of the table; progress.py says which are finished
    job_time.py     how long a job takes, calculated from steady state and first batches; pure
    picture.py      the picture of README.md
    plots.py  show.py  store.py   PNG; tables on a terminal and in Markdown; JSON

To be fair, all sides run in turn, in one session, on one broker, with the same Spark settings and checkpoint manager,
after unmeasured warm-up rounds. A run lasts from `start()` to the end of `awaitTermination()`; steady.py has the
triggers in between. Each run's output is counted. Ratios are ratios of medians, in steady.py medians of the ratios of
pairs. The built-in source also runs with `kafka.fetch.max.wait.ms=10`: its default delays each query by about a second,
and a comparison with that alone would mean little.
"""
