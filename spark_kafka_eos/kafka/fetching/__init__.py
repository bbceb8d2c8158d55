"""Fetching: ranges of offsets -> whole record batches, and which of them are visible.

fetch fetch_response            performs the steps; decodes the answers without a copy
fetch_plan fetch_steps          what to fetch next from which broker, and what an answer means; the steps
fetch_cursor fetch_sizes        one range while it is read; how many bytes to ask for, by what the link managed
visibility                      aborted records and markers are not visible

Only fetch performs requests: `make check` verifies it.
"""
