"""The laboratory's commands, one file per command."""
