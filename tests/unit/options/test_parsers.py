"""Each parser takes what Kafka and Spark write and says why it takes nothing else."""

from fractions import Fraction

import pytest

from spark_kafka_eos.kafka.partitions import TopicPartition as TP
from spark_kafka_eos.options import parsers as p
from spark_kafka_eos.options.values import LatestMinus, Limit


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", (("localhost", 9092),)),
        ("a:1, b:2 ,c:3", (("a", 1), ("b", 2), ("c", 3))),
        ("a:1,", (("a", 1),)),
        ("[::1]:9092", (("::1", 9092),)),
        ("SASL_SSL://kafka-1.example:9093", (("kafka-1.example", 9093),)),
        ("10.0.0.1:65535", (("10.0.0.1", 65535),)),
    ],
)
def test_addresses_are_host_and_port(text, expected):
    assert p.addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["", " , ", "localhost", "localhost:", ":9092", "a:0", "a:65536", "a:b", "::1:9092", "a:1 b:2"]
)
def test_anything_else_is_not_an_address(text):
    with pytest.raises(ValueError, match=r"host:port"):
        p.addresses(text)


def test_a_location_with_a_password_is_refused_without_printing_it():
    assert (
        p.location("abfss://container@account.example/checkpoints") == "abfss://container@account.example/checkpoints"
    )
    with pytest.raises(ValueError, match="contains a password") as refused:
        p.location("s3a://key:secret@bucket/checkpoints")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("who", ["ann", "ann:", ":secret", "ann:secret", ""])
def test_a_url_with_a_user_is_refused_also_without_a_password(who):
    with pytest.raises(ValueError, match="must not contain a user or a password") as caught:
        p.url(f"https://{who}@server/token")
    assert not who or who not in str(caught.value)
    assert p.url(" https://server/token?user=ann@x ") == "https://server/token?user=ann@x"


def test_a_number_outside_its_bounds_is_refused_with_the_bounds():
    assert p.number(1, 5)("5") == 5
    for text in ("0", "6"):
        with pytest.raises(ValueError, match="between 1 and 5"):
            p.number(1, 5)(text)
    with pytest.raises(ValueError, match=r"'1\.5' is not a whole number"):
        p.number(1, 5)("1.5")


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("TRUE", True), ("false", False), (" False ", False)])
def test_a_flag_is_true_or_false_in_any_case(text, expected):
    assert p.flag(text) is expected


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_flag_is_nothing_else(text):
    with pytest.raises(ValueError, match="neither true nor false"):
        p.flag(text)


def test_a_choice_is_found_in_any_case_and_a_wrong_one_lists_the_choices():
    choice = p.one_of("exactly-once", "at-least-once")
    assert choice("Exactly-Once") == "exactly-once"
    with pytest.raises(ValueError, match="'at-most-once' is not one of exactly-once, at-least-once"):
        choice("at-most-once")


def test_a_fixed_setting_takes_what_holds_anyway_and_gives_the_reason_for_refusing_more():
    acks = p.only("all", "-1", why="every replica counts")
    assert [acks("all"), acks("-1"), acks("ALL")] == ["all", "-1", "ALL"]
    with pytest.raises(ValueError, match="only all or -1 is supported, not '1': every replica counts"):
        acks("1")


def test_topics_are_split_at_commas_and_named_once():
    assert p.topics("b, a,b") == ("b", "a")


def test_blank_entries_in_a_list_of_topics_are_dropped_as_by_the_built_in_source():
    assert p.topics("a,b,") == p.topics(" ,a,,b") == ("a", "b")


@pytest.mark.parametrize("text", [",", " , "])
def test_a_list_of_topics_needs_a_topic(text):
    with pytest.raises(ValueError, match="not a valid topic name"):
        p.topics(text)


@pytest.mark.parametrize("text", ["a b", "a/b", ".", "..", "x" * 250, "ü"])
def test_an_illegal_topic_name_is_refused(text):
    with pytest.raises(ValueError, match="not a valid topic name"):
        p.topics(text)


def test_a_pattern_must_be_a_regular_expression():
    assert p.pattern("orders-.*") == "orders-.*"
    with pytest.raises(ValueError, match=r"'orders-\[' is not valid: \[ without \]"):
        p.pattern("orders-[")
    with pytest.raises(ValueError, match="must not be empty"):
        p.pattern(" ")


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ('{"a": {"0": 2, "00": 1}}', "partition 0 of topic 'a' occurs twice"),
        ('{"a": {"0": 2, "0": 1}}', "'0' occurs twice"),
        ('{"a": {"0": 2}, "a": {"0": 1}}', "'a' occurs twice"),
        ('{"a": {"0": 2}, " a": {"0": 1}}', "'a' occurs twice"),
    ],
)
def test_two_offsets_of_one_partition_are_refused(text, twice):
    for parse in (p.starting_offsets, p.ending_offsets, p.timestamps):
        with pytest.raises(ValueError, match=twice):
            parse(text)


def test_a_partition_number_is_one_of_the_protocols():
    with pytest.raises(ValueError, match="2147483648 of topic 'a' is not a partition number"):
        p.assign('{"a": [2147483648]}')


def test_a_partition_number_has_ascii_digits():
    with pytest.raises(ValueError, match="is not a partition number"):
        p.starting_offsets('{"a": {"١": 2}}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250", 250), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 min", 120_000), ("1H", 3_600_000)],
)
def test_a_duration_is_read_as_spark_reads_it(text, expected):
    assert p.duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "m", "1.5s", "-1s", "1 fortnight"])
def test_anything_else_is_not_a_duration(text):
    with pytest.raises(ValueError, match="not a valid duration"):
        p.duration_ms(text)


def test_assigned_partitions_are_sorted_and_named_once():
    assert p.assign('{"b": [1, 0, 1], "a": [2]}') == (TP("a", 2), TP("b", 0), TP("b", 1))
    assert p.assign('{"a": [2147483647]}') == (TP("a", 2**31 - 1),)


@pytest.mark.parametrize(
    "text", ["orders", "[]", "{}", '{"a": 0}', '{"a": []}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [true]}']
)
def test_a_malformed_assignment_shows_the_shape_that_is_expected(text):
    with pytest.raises(ValueError, match=r'expected \{"orders": \[0, 1\]\}'):
        p.assign(text)


@pytest.mark.parametrize("word", ["earliest", "latest", "committed"])
def test_a_start_may_be_a_word_in_any_case(word):
    assert p.starting_offsets(f" {word.upper()} ") == word


@pytest.mark.parametrize(("text", "offsets"), [("latest-1", 1), (" Latest-1000000 ", 1_000_000)])
def test_a_start_may_be_a_number_of_offsets_before_the_latest(text, offsets):
    assert p.starting_offsets(text) == LatestMinus(offsets)


def test_a_start_may_be_an_offset_for_each_partition():
    assert p.starting_offsets('{"a": {"0": 23, "1": -1}, "b": {"0": -2}}') == {
        TP("a", 0): 23,
        TP("a", 1): -1,
        TP("b", 0): -2,
    }


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "newest",
            "latest-0",
            "latest--1",
            "latest-",
            "latest+1",
            "latest-9999999999999999999",
            "{",
            "23",
            "{}",
            '{"a": 23}',
            '{"a": {}}',
            '{"a": [23]}',
            '{"a": {"x": 1}}',
            '{"a": {"-1": 0}}',
        ),
        *(f'{{"a": {{"0": {offset}}}}}' for offset in ("-3", "1.0", '"1"', "null", "true", "9223372036854775808")),
    ],
)
def test_a_malformed_start_shows_the_shape_that_is_expected(text):
    with pytest.raises(
        ValueError,
        match=r"expected earliest, .*committed-or-earliest, committed-or-latest or \{\"orders\": \{\"0\": 23",
    ):
        p.starting_offsets(text)


def test_offsets_are_numbers_of_64_bits():
    assert p.ending_offsets(f'{{"a": {{"0": {2**63 - 1}}}}}') == {TP("a", 0): 2**63 - 1}
    with pytest.raises(ValueError, match=f"{2**63} .topic 'a', partition 0. is not a valid"):
        p.ending_offsets(f'{{"a": {{"0": {2**63}}}}}')


def test_an_end_cannot_be_earliest():
    assert p.ending_offsets('{"a": {"0": -1}}') == {TP("a", 0): -1}
    assert p.ending_offsets("Latest") == "latest"
    for text in ("earliest", '{"a": {"0": -2}}'):
        with pytest.raises(ValueError, match="expected latest or"):
            p.ending_offsets(text)


def test_timestamps_are_milliseconds_for_each_partition():
    assert p.timestamps('{"a": {"3": 1700000000000}}') == {TP("a", 3): 1_700_000_000_000}
    with pytest.raises(ValueError, match="milliseconds since 1970"):
        p.timestamps('{"a": {"3": -1}}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [("250", 250), ("1b", 1), ("512k", 512 << 10), ("64m", 64 << 20), ("64 MB", 64 << 20), ("1g", 1 << 30)],
)
def test_a_size_is_read_as_spark_reads_it(text, expected):
    assert p.size_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "m", "1.5m", "-1k", "0", "0g", "1 mile"])
def test_anything_else_is_not_a_size(text):
    with pytest.raises(ValueError, match="not a valid size"):
        p.size_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", Limit(count=1_000)),
        ("0", Limit(count=0)),
        ("1%", Limit(share=Fraction("0.01"))),
        (" 0.5 % , 20 ", Limit(count=20, share=Fraction("0.005"))),
    ],
)
def test_a_limit_is_a_count_a_share_or_both(text, expected):
    assert p.limit(text) == expected
    assert p.limit(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "101%", "1,2", "1%,2%", "1000,", "%"])
def test_anything_else_is_not_a_limit(text):
    with pytest.raises(ValueError, match="neither a count nor a percentage|has two"):
        p.limit(text)


def test_a_rack_may_be_a_name_a_variable_or_nothing():
    assert [p.rack(text) for text in (" eu-1a ", "env:RACK", "")] == ["eu-1a", "env:RACK", ""]
    for text in ("env:", "env:MY RACK", "env:1"):
        with pytest.raises(ValueError, match="does not name an environment variable"):
            p.rack(text)


@pytest.mark.parametrize("text", ["1_000", "１０", "٣", "1e3", "0x10", "", "+", "--1", "1 0"])
def test_a_number_has_only_the_digits_0_to_9(text):
    for parse in (p.number(0), p.duration_ms, p.size_bytes, p.limit):
        with pytest.raises(ValueError, match=r"is not|is neither"):
            parse(text)


@pytest.mark.parametrize(("text", "expected"), [("+5", 5), (" 5 ", 5), ("007", 7), ("-1", -1)])
def test_a_number_may_have_what_java_allows(text, expected):
    assert p.number(-1)(text) == expected


def test_ports_and_partitions_have_only_the_digits_0_to_9():
    with pytest.raises(ValueError, match="is not host:port"):
        p.addresses("broker:９０９２")
    with pytest.raises(ValueError, match="is not a topic with a partition"):
        p.output_topics("orders:３")


def test_a_value_that_is_the_only_one_has_no_blanks_around_it():
    assert p.only("oidc", why="")(" OIDC ") == "OIDC"
