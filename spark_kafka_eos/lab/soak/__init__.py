"""`kafka-eos chaos soak`: runs three queries for minutes or days, while their processes are killed, paused or isolated.

schedule    which fault when, of a seed; pure
queries     the queries, the program of each driver
drivers     keeps a query's driver alive, and makes it die
brokers     the two clusters: takes a broker away, and waits until the replicas are in sync again
source      feeds the source topic, a part of it in aborted transactions
faults      carries the schedule out
screen      shows how it goes
check       what must have come out, and what is wrong with what did; pure
evidence    reads what the check needs: Kafka by librdkafka, the plans from the checkpoints
report      the table, the JSON file and the page
run         all of it together
"""
