"""Listeners of Spark's streaming queries, on the driver: progress and lag as log lines and metrics, and lineage.

progress    ProgressListener: a line and metrics per micro-batch, with what the brokers know meanwhile
lineage     LineageListener: OpenLineage events
follow      prints a query's progress until it ends
"""
