"""Real runs of a query for the specification: real processes on a real broker, killed and restarted, and recorded.

faults     what may happen to a driver, drawn by a seed
driver     a driver's process: what Spark does around the product, with the checkpoint in the supervisor's process
witness    records what passes the proxy between drivers and broker, in the order in which the broker handles it
query      the supervisor: starts drivers, kills, pauses and holds them, keeps or spoils the checkpoint
broker     a broker that is reached through the proxy alone, even by itself
record     runs one after the other, as recordings for `lab.specification`
warm       imported where drivers are forked from
"""
