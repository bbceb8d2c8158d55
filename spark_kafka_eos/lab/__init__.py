"""The laboratory: what proves and measures the connector. Nothing of the product imports it.

commands     its part of the command line
simulation   the product's own code above a model of Kafka, seed by seed
soak         queries under faults for hours
fuzz         bytes that nobody meant
bench        this connector beside others
demo         the proof on real data
"""
