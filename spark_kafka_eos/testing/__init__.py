"""The test kit: real brokers on the loopback interface, a proxy that makes faults, and Spark drivers to kill.

embedded kraft             a real Kafka, one broker or three
jars repository java       where its jars come from
proxy proxy_rules proxy_frames   chosen requests meet chosen faults
driver supervised          processes that can be killed
read_topic read_offsets    what librdkafka sees
ports                      free ports
"""
