"""Dead letters: records that cannot be decoded or written, put aside in a topic of their own. Pure.

causes      why a record may be one, how they are counted, and how many a batch may have
headers     what a dead letter says of itself
rows        the rows of an encode task that become dead letters

`replay` sends them back, `spark.dead_letters` has the functions for users' DataFrames.
"""
