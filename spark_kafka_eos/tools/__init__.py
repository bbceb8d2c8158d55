"""What operators run and see. A query without a listener imports nothing of it.

cli/        the command line `kafka-eos`
operators/  what operators ask of a cluster, its queries and open transactions, and what they end there
doctor/     what a machine, its Spark and its Python workers lack
listener/   ProgressListener and LineageListener: what a running query reports to operators
replay/     sends dead letters back
verify/     the checker: was an output written exactly once?

May import the connector and the client; the command line also the test kit and the demo.
"""
