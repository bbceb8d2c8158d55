import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from spark_kafka_eos.kafka.producing.murmur2 import murmur2

# What org.apache.kafka.common.utils.Utils.murmur2 of kafka-clients 4.3.1 returned (six of them stand in its UtilsTest).
JAVA = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
    "": 275646681,
    "üß漢": -209196403,
}
# The same of bytes 255, 218, 181, … (minus 37 each), 0 to 19 of them.
JAVA_BY_LENGTH = [
    275646681, -311467685, -847220837, 354844405, -1488345827, -1813505863, -2018754737, 1695022813, -543617013,
    -34544289, 750164616, -1362870943, 1384227369, 806014163, -1414823257, 1675313078, -1688619008, -51236702,
    1166600314, -785116249,
]  # fmt: skip


def descending(size: int) -> bytes:
    return bytes((255 - 37 * i) % 256 for i in range(size))


@pytest.mark.parametrize("text", JAVA)
def test_a_hash_is_javas(text: str) -> None:
    assert murmur2(pa.array([text.encode()])).view(np.int32).tolist() == [JAVA[text]]


def test_strings_are_hashed_by_their_utf8_bytes() -> None:
    assert murmur2(pa.array(list(JAVA))).view(np.int32).tolist() == list(JAVA.values())


@pytest.mark.parametrize("size", range(20))
def test_keys_of_one_length_are_hashed_as_java_does(size: int) -> None:
    assert murmur2(pa.array([descending(size)] * 3, pa.binary())).view(np.int32).tolist() == [JAVA_BY_LENGTH[size]] * 3


def test_keys_of_different_lengths_are_hashed_as_java_does() -> None:
    keys = pa.array([descending(size) for size in range(20)], pa.binary())
    assert murmur2(keys).view(np.int32).tolist() == JAVA_BY_LENGTH


def test_no_keys_have_no_hashes() -> None:
    assert murmur2(pa.array([], pa.binary())).tolist() == []


def test_keys_beyond_one_chunk_are_hashed_too() -> None:
    for keys in ([f"{i:08}" for i in range(40_000)], [str(i) for i in range(40_000)]):
        hashes = murmur2(pa.array(keys))
        for i in (0, 16_383, 16_384, 32_767, 32_768, 39_999):
            assert hashes[i] == reference(keys[i].encode())


def test_a_slice_is_hashed_by_its_own_keys() -> None:
    for keys in (["aaaa", "bbbb", "cccc", "dddd"], ["a", "bb", "ccc", "dddd"]):
        assert murmur2(pa.array(keys).slice(1, 2)).tolist() == murmur2(pa.array(keys[1:3])).tolist()


def test_a_null_counts_as_empty_whatever_its_bytes() -> None:
    data, valid = pa.py_buffer(b"aaaabbbbcccc"), pa.py_buffer(bytes([0b101]))
    keys = pa.Array.from_buffers(pa.binary(), 3, [valid, pa.py_buffer(np.array([0, 4, 8, 12], np.int32)), data])
    assert murmur2(keys).tolist() == murmur2(pa.array([b"aaaa", b"", b"cccc"])).tolist()


def test_only_nulls_are_hashed_as_empty() -> None:
    assert murmur2(pa.array([None, None], pa.binary())).view(np.int32).tolist() == [JAVA[""]] * 2


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_large_arrays_are_hashed_alike(kind: pa.DataType) -> None:
    assert murmur2(pa.array([b"21", b"foobar"], kind)).view(np.int32).tolist() == [JAVA["21"], JAVA["foobar"]]


def test_numbers_are_not_keys() -> None:
    with pytest.raises(TypeError, match="int64"):
        murmur2(pa.array([1]))


@given(st.lists(st.binary(max_size=40), max_size=50))
def test_any_keys_are_hashed_as_kafka_python_does(keys: list[bytes]) -> None:
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [reference(key) for key in keys]


@given(st.integers(0, 24).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=20)))
def test_any_keys_of_one_length_are_hashed_as_kafka_python_does(keys: list[bytes]) -> None:
    assert murmur2(pa.array(keys, pa.binary())).tolist() == [reference(key) for key in keys]
