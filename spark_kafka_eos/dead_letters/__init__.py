"""What operators do with a topic of dead letters: look at them, and send them back exactly once. Without Spark.

stored    the dead letters of a topic, read committed
replay    sends them back, each once, in transactions of its own
"""
