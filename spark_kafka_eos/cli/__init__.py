"""The command line `kafka-eos`: one file for each command."""
