"""The command line `kafka-eos`, one file per command."""
