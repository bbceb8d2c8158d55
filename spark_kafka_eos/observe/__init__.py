"""What a query reports of itself: logs, metrics, traces, and how far it is behind.

observers                       who hears of each batch: the log, and by options
trace_file telemetry spans links    files of timelines, OpenTelemetry
datagrams tallies outcomes      what tasks and commits send to the driver's listener
progress lag lateness           what the listener reports of a batch
query_metrics metrics endpoint  metrics as values, and their endpoint for Prometheus
"""
