"""The text of any .proto file says what protoc says that it does."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from google.protobuf.descriptor_pool import DescriptorPool

from spark_kafka_eos.registry.nesting import UnsupportedSchema
from spark_kafka_eos.registry.proto_text import descriptor_of
from tests.unit.registry.proto_texts import proto_text
from tests.unit.registry.protobuf_samples import MODULES
from tests.unit.registry.protoc_programs import compiled, published
from tests.unit.registry.test_proto_text import declared, entries_last

FILES = 600
REFUSED = {"'edition' at the start", "a group"}  # as the page has it

pytestmark = pytest.mark.skipif(find_spec("protoc") is None, reason="its wheels are for two kinds of Linux")


def test_the_text_of_any_file_is_read_as_protoc_reads_it(tmp_path):
    imports = [module.DESCRIPTOR for module in MODULES]
    texts = {f"seed{seed}.proto": proto_text(seed) for seed in range(FILES)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, newline="")
    expected = compiled(tmp_path, texts)
    for name, text in texts.items():
        file = descriptor_of(text)
        file.name = name
        assert declared(file, imports) == declared(entries_last(expected[name]), imports), name


def test_the_texts_of_protobufs_own_files_are_read_or_refused_for_a_known_reason(tmp_path):
    texts = published()
    expected = compiled(tmp_path, texts)
    pool = DescriptorPool()
    for each in expected.values():
        pool.Add(each)
    read, reasons = 0, set()
    for name, text in texts.items():
        try:
            file = descriptor_of(text)
        except UnsupportedSchema as refusal:
            reasons |= {reason for reason in REFUSED if reason in str(refusal)} or {f"{name}: {refusal}"}
            continue
        file.name = name
        imports = [pool.FindFileByName(needed) for needed in expected[name].dependency]
        assert declared(file, imports) == declared(entries_last(expected[name]), imports), name
        read += 1
    assert reasons == REFUSED and read > 15
