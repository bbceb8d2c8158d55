"""`python -m lab soak`: runs three queries for minutes or days, while their processes are killed, paused or isolated.

schedule    which fault happens when, by seed; pure
queries     the queries: the program of each driver
drivers     restarts, kills and pauses a query's driver
brokers     the two clusters: stops brokers, and waits until the replicas are in sync again
source      feeds the source topic, partly with aborted transactions
faults      injects the faults of the schedule
screen      shows the progress
check       compares the output with the expected one; pure
evidence    reads what the check needs: topics with librdkafka, plans from the checkpoints
report      the table, the JSON file and the HTML page
run         runs a soak
"""
