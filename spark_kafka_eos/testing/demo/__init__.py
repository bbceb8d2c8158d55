"""What shows exactly-once on real data. Needs `pip install "spark-kafka-eos[demo]"` and Java 17.

run plan screen check   `kafka-eos demo`: runs a job, kills it, and compares its output with the data set
flight_delays           the job, for spark-submit
flights flights_producer   its data: every departure from New York in 2013
orders                  Avro orders, some of them bad, for `jobs/decode_orders.py`; needs the extra `registry`
"""
