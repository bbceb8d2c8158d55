"""Reading, without Spark: where a source's partitions begin and end, and from ranges of offsets to Arrow batches."""
