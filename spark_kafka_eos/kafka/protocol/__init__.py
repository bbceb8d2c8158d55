"""Kafka's protocol: connections, requests with retries, and what brokers answer.

connection frames versions responses    one connection: frames, API versions, decoded answers
cluster metadata leaders                leaders, coordinators, connections; requests to many leaders
retry backoff error_codes log_pace      the retry loop: an error code's reaction, budgets, how loudly it logs
codes acl_hints                         error codes by name; which ACL is missing
transactions groups                     coordinators of a transactional.id and of a consumer group
offsets epochs topics                   where partitions and leader epochs begin and end; creates the ledger topic
describe facts producers                what brokers know of topics, groups, transactional.ids, producer ids, as values
markers                                 ends in one partition what no coordinator will end
recorder trace                          records a batch's requests; its timeline as values

Not obvious:
- In TV2, the broker adds a partition to the transaction while it handles the first Produce; right after an EndTxn, it
  waits 20 ms in that request for the markers of the previous transaction.
- EndTxn is answered before the markers are written, so records become visible a moment later.
- InitProducerId with an outdated producer epoch aborts the newer producer's open transaction before it returns
"fenced".

Why kafka-python's classes, and not codecs generated from Kafka's schemas? Such codecs were generated for the APIs and
versions of `versions.RANGES` (4,700 lines in 26 modules, which write the same bytes): the imports of a sink's commit
took 142 ms of CPU time with them instead of 199. The other imports are fewer since. With classes that cost nothing at
all, a process of Spark would import this much less (medians of 9 alternating runs on two busy cores, Python 3.11,
kafka-python 3.0.12):

    the sink's commit               273 -> 185 ms    145 -> 109 modules
    its planning, first batch       187 -> 123 ms    115 ->  79
    the source's planning            88 ->  69 ms     88 ->  57

So codecs would save the commit less than a third, and a process pays all of it once. Large responses were decoded more
slowly: Metadata of 1,000 partitions in 7.5 ms instead of 4.7, our own checks included.
So the classes stay. What copies or keeps records there, we do ourselves: Produce (frames.py), Fetch
(fetch_response.py). What their decoders let through is refused in responses.py, with their public attributes only.
tests/broker/test_schemas.py compares their schemas with those of Kafka itself.
"""
