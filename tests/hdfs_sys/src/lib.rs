//! Nothing: this crate names where the source of Hadoop's libhdfs comes from. `tests/libhdfs.py` compiles it.
