"""Proves that a bad record neither stops a query nor is lost, while drivers and executors are killed. The input are
`spark_kafka_eos.testing.demo.orders`: Avro values of three schema versions, some of them bad, in seven ways.

query    what the drivers run
run      kills drivers and executors, and checks that good records and dead letters are together the source
"""
