"""The laboratory's part of the command line: one file for each command."""
