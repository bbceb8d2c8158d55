"""The command line `kafka-eos`, one file per command; the largest, `query`, has its tables and its JSON apart."""
