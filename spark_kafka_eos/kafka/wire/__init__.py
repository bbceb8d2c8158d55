"""Kafka's record batch format, to and from Arrow columns. Pure: no I/O.

record_batch.py              the header of a record batch v2
legacy.py                    messages of the format before Kafka 0.11, rewritten as record batches v2
header_table.py              the headers of many batches as one array
control.py                   which control batches are abort markers, many at once
encode.py decode.py          Arrow columns <-> record batches
stride.py chain.py           read records of equal size, and of different sizes
headers.py                   record headers
schema_headers.py            those that name the schema of a key or a value
varint.py unsigned.py        variable-length integers, many at once and one at a time
columns.py digests.py        binary columns, and digests of their rows
compression.py               none, gzip, snappy, lz4, zstd
single.py                    single records without numpy and Arrow
"""
