"""The way back of dead letters: sends them to their topics again, each exactly once. Without Spark.

stored    the dead letters of a topic, read committed
plan      which belong together, and where each one goes
send      sends them, in transactions of its own
"""
