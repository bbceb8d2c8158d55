"""A table that takes part in a micro-batch: Kafka and the table get the same batches, both or neither.

participant     the protocol: what a table has to offer
token           what the table stores of the transaction that its rows belong to
decide          (the table's token, ledger entry, batch) -> write, append again, finish, skip or refuse
refusal         why a batch is refused because of the table
failure         an error of the table's own, as one of this package
diagnosis       what the next start would do, for operators
sql             the protocol for SQLite and PostgreSQL
instants        a DataFrame's rows, with timestamps as the instants that they are

Only sql reaches a table, and diagnosis what it is given. `transaction.two_phase` performs what `decide` says.
"""
