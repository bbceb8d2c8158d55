"""The preflight: checks before the first batch, and what a query needs of a cluster.

run                             reads the facts, has them checked, raises and logs
checks abilities message_formats loop   find what would lose data or fail later
sources                         what a batch shows: a source on another cluster, or one that the query writes
findings                        the result of a check
releases services               what is known of releases and of services
rights                          the ACLs that a query needs
probe                           a scratch transaction
"""
