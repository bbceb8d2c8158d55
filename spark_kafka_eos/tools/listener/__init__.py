"""Listeners of Spark's streaming queries, on the driver: progress and lag as log lines and metrics, lineage, follow.

progress    ProgressListener: a line and metrics per micro-batch, with what the brokers know meanwhile
lineage     LineageListener: OpenLineage events
follow      prints a query's progress until it ends
"""
