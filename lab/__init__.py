"""The laboratory: tests and measures the connector. It is never in a wheel: `python -m lab` runs it from a checkout.

commands     its commands
simulation   runs the connector's code on a model of Kafka, with random seeds
soak         runs queries under faults for hours
dead_letters lost_checkpoints   prove a guarantee while drivers are killed
fuzz         fuzzes decoders and the protocol layer
mutants      changes the code here and there; a test should notice
bench        benchmarks against other connectors
standalone   a standalone Spark cluster on this machine
"""
