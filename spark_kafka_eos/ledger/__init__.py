"""The ledger: which micro-batch was committed last under a transactional.id, and what follows from that.

entry.py        the entry
entry_format.py its form in the record and in the pointer
copies.py       which of record and pointers is valid
source_mark.py  whose transactions committed a group's source offsets
records.py      what the ledger topic holds of each transactional.id; pure: takes what was fetched
ends.py         compares where the last commit ended with where a batch starts, by source and cluster
verdicts.py     (entry, batch) -> write, skip or refuse
write_verdicts.py  the same for a batch job's write
refusal.py      what a refusal says; query_refusals, batch_refusals, write_refusals have each of them, remedies ways out
next_entry.py   (entry, batch) -> the batch's entry
decide.py       the same, with the options applied
topic.py        reads the records from the brokers, and appends the next one
create.py       creates the topic
answers.py      what coordinators answered, to be confirmed before the commit
keeper.py       the entry of one transactional.id: read by its owner, written in each batch's transaction
source_clusters.py  which cluster each source of a batch reads, and which of its topics are the sink's
progress.py     where a sink's transactions ended, for a source
diagnosis.py    what would be decided about the next batch, without owning the transactional.id

Only topic, create, keeper, source_clusters, progress and diagnosis use connections: `make check` verifies it.
"""
