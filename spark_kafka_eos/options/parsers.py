"""Parsers of option values. A parser raises ValueError with the reason; table.py adds the option's name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.kafka.auth.security import TLS_VERSIONS
from spark_kafka_eos.kafka.partitions import TopicPartition
from spark_kafka_eos.options.outputs import OutputTopic
from spark_kafka_eos.options.values import LatestMinus, Limit

EARLIEST, LATEST = -2, -1  # as in the built-in source's JSON

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


# Text, which `re` compiles at the first use: a query uses few of them.
_WHOLE = r"[+-]?[0-9]{1,4000}"  # Python's int() also takes 1_000, and digits of other scripts
_LEGAL_TOPIC = r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}"
_ADDRESS = r"(?:[A-Za-z0-9_.\-]+://)?(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:/\s]+)):(?P<port>[0-9]{1,5})"
_LATEST_MINUS = r"latest-(?P<offsets>[1-9][0-9]{0,17})"
_DURATION = r"(?P<count>[0-9]+)\s*(?P<unit>ms|s|m|min|h|d)?"
_SIZE = r"(?P<count>[0-9]+)\s*(?P<unit>[kmgt]b?|b)?"
_LIMIT = r"[0-9]+|(?P<share>[0-9]+(?:\.[0-9]+)?)\s*%"
_PARTITIONS = r"([0-9]{1,6})(?:-([0-9]{1,6}))?"
_BROKEN_VERSIONS = ("TLSv1.1", "TLSv1", "SSLv3", "SSLv2Hello")
_SHIFTS = {"": 0, "b": 0} | {
    f"{unit}{b}": shift for unit, shift in zip("kmgt", (10, 20, 30, 40), strict=True) for b in ("", "b")
}
_TRIMMED = "".join(map(chr, range(ord(" ") + 1)))
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def number(minimum: int, maximum: int = INT_MAX) -> Callable[[str], int]:
    """A whole number in `[minimum, maximum]`."""

    def parse(value: str) -> int:
        if not re.fullmatch(_WHOLE, value.strip()):
            raise ValueError(f"{value!r} is not a whole number")
        parsed = int(value)
        if not minimum <= parsed <= maximum:
            raise ValueError(f"{parsed} is not between {minimum} and {maximum}")
        return parsed

    return parse


def flag(value: str) -> bool:
    """`true` or `false`, case-insensitive."""
    if (lowered := value.strip().lower()) not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return lowered == "true"


def one_of(*choices: str, **synonyms: str) -> Callable[[str], str]:
    """One of `choices`, case-insensitive; `synonyms` maps other spellings to a choice."""
    spellings = {choice.lower(): choice for choice in choices} | synonyms

    def parse(value: str) -> str:
        try:
            return spellings[value.strip().lower()]
        except KeyError:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}") from None

    return parse


def only(*accepted: str, why: str) -> Callable[[str], str]:
    """A setting that cannot be changed: `accepted` lists the values that are allowed, since they have no effect."""

    def parse(value: str) -> str:
        if value.strip().lower() not in accepted:
            raise ValueError(f"only {' or '.join(accepted)} is supported, not {value!r}: {why}")
        return value.strip()

    return parse


def text(value: str) -> str:
    """Any text that is not blank."""
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


def password(value: str) -> Secret:
    """A secret of Kafka's Java clients, which drop what `String.trim` does around it (`ConfigDef.parseType`)."""
    return Secret(value.strip(_TRIMMED))


def location(value: str) -> str:
    """A path or URL. It is printed in logs and errors, so it must not contain a password; the error does not either."""
    if urlsplit(value).password is not None:
        raise ValueError("contains a password; configure it in Spark's file systems (spark.hadoop.fs.…) instead")
    return text(value)


def topic(value: str) -> str:
    """A legal topic name (Kafka's `Topic.validate`)."""
    name = value.strip()
    if not re.fullmatch(_LEGAL_TOPIC, name):
        raise ValueError(f"{name!r} is not a valid topic name (1 to 249 of the characters a-z A-Z 0-9 . _ -)")
    return name


def topics(value: str) -> tuple[str, ...]:
    """Comma-separated topic names; duplicates and blank entries are dropped, as in the built-in source."""
    return tuple(dict.fromkeys(topic(name) for name in text(value).split(",") if name.strip())) or (topic(""),)


def output_topics(value: str) -> tuple[OutputTopic, ...]:
    """Comma-separated topics, each of them whole, or with a partition or a range (`orders:3`, `orders:0-15`, both ends
    included), of which a topic may have several. Duplicates and blank entries are dropped.
    """
    declared: dict[str, set[int] | None] = {}
    for entry in (entry.strip() for entry in text(value).split(",") if entry.strip()):
        name, colon, numbers = entry.partition(":")
        name = topic(name)
        partitions = _numbers(entry, numbers) if colon else None
        if name in declared and (declared[name] is None) != (partitions is None):
            raise ValueError(f"{name} is listed as a whole topic and with partitions")
        declared[name] = None if partitions is None else (declared.get(name) or set()) | partitions
    return tuple(
        OutputTopic(topic=name, partitions=None if numbers is None else frozenset(numbers))
        for name, numbers in declared.items()
    ) or (OutputTopic(topic=topic("")),)


def _numbers(entry: str, numbers: str) -> set[int]:
    match = re.fullmatch(_PARTITIONS, numbers)
    if match is None:
        raise ValueError(f"{entry!r} is not a topic with a partition or a range, for example orders:3 or orders:0-15")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{entry!r} is an empty range: {last} comes before {first}")
    return set(range(first, last + 1))


def limit(value: str) -> Limit:
    """A count, a share in percent, or both: `1000`, `0.5%`, `1000,0.5%`."""
    from fractions import Fraction  # few queries need it

    counts, shares = [], []
    for part in (part.strip() for part in value.split(",")):
        match = re.fullmatch(_LIMIT, part)
        if match is None or (match["share"] is not None and Fraction(match["share"]) > 100):
            raise ValueError(f"{part!r} is neither a count nor a percentage, for example 1000, 1% or 1000,1%")
        if match["share"] is None:
            counts.append(number(0, LONG_MAX)(part))
        else:
            shares.append(Fraction(match["share"]) / 100)
    if len(counts) > 1 or len(shares) > 1:
        raise ValueError(f"{value!r} has two {'counts' if len(counts) > 1 else 'percentages'}")
    return Limit(count=next(iter(counts), None), share=next(iter(shares), None))


def cluster_ids(value: str) -> tuple[str, ...]:
    """Comma-separated cluster ids; an empty one means the sink's own cluster."""
    return tuple(name.strip() for name in text(value).split(","))


def pattern(value: str) -> str:
    """A regular expression for topic names in Java's syntax, translated to Python's."""
    from spark_kafka_eos.options.java_regex import to_python  # most sources name their topics

    try:
        return to_python(text(value))
    except ValueError as error:
        raise ValueError(f"{value!r} {error}" if value.strip() else str(error)) from None


def addresses(value: str) -> tuple[tuple[str, int], ...]:
    """Comma-separated `host:port`; a listener prefix (`SSL://`) is dropped, as in the Java client."""
    servers = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        match = re.fullmatch(_ADDRESS, part)
        if match is None or not 0 < int(match["port"]) < 65_536:
            raise ValueError(f"{part!r} is not host:port")
        servers.append((match["v6"] or match["host"], int(match["port"])))
    if not servers:
        raise ValueError("must not be empty; expected a comma-separated list of host:port")
    return tuple(servers)


def rack(value: str) -> str:
    """A rack, or `env:NAME`; empty, Java's default, for none."""
    text = value.strip()
    if text.startswith("env:") and not re.fullmatch("env:[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError(f"{text!r} does not name an environment variable; expected env:NAME")
    return text


def partitioner(value: str) -> str:
    """A partitioner's name, or the equivalent Java class; other classes cannot be loaded."""
    names = {
        "org.apache.kafka.clients.producer.internals.defaultpartitioner": "murmur2",
        "org.apache.kafka.clients.producer.roundrobinpartitioner": "roundrobin",
    }
    return one_of("murmur2", "consistent", "roundrobin", **names)(value)


def tls_versions(value: str) -> tuple[str, ...]:
    """Comma-separated versions of TLS in Java's names. Those before 1.2 are dropped; another one must be left."""
    named = tuple(part.strip() for part in value.split(","))
    unknown = next((name for name in named if name not in (*TLS_VERSIONS, *_BROKEN_VERSIONS)), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is not a version of TLS; expected TLSv1.2, TLSv1.3 or both")
    versions = tuple(name for name in TLS_VERSIONS if name in named)
    if not versions:
        raise ValueError(f"{value!r} has only versions that are broken; expected TLSv1.2, TLSv1.3 or both")
    return versions


def url(value: str) -> str:
    """An http or https URL without credentials. Errors do not quote it, since it may contain some."""
    parts = urlsplit(value.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// URL")
    if parts.username is not None:
        raise ValueError("must not contain a user or a password; set them with their own options")
    return value.strip()


def urls(value: str) -> tuple[str, ...]:
    """Comma-separated URLs, as `url` takes them."""
    return tuple(url(part) for part in value.split(","))


def function(value: str) -> str:
    """A function of a module, `package.module:function`."""
    name = value.strip()
    if not all(part.isidentifier() for part in name.replace(":", ".", 1).split(".")) or ":" not in name:
        raise ValueError(f"{name!r} is not module:function, for example company.kafka:token")
    return name


def duration_ms(value: str) -> int:
    """Milliseconds from Spark's time format: `500ms`, `30s`, `15m`, `1h`, `1d`; a bare number is milliseconds."""
    match = re.fullmatch(_DURATION, value.strip().lower())
    if match is None:
        raise ValueError(f"{value!r} is not a valid duration, for example 30s or 15m")
    return int(match["count"]) * _MILLISECONDS[match["unit"] or "ms"]


def size_bytes(value: str) -> int:
    """Bytes from Spark's size format, powers of 1024: `512k`, `64m`, `64mb`, `1g`; a bare number is bytes."""
    match = re.fullmatch(_SIZE, value.strip().lower())
    if match is None or not (size := int(match["count"]) << _SHIFTS[match["unit"] or ""]):
        raise ValueError(f"{value!r} is not a valid size, for example 64m or 1g")
    return size


def _json(value: str, shape: str) -> Mapping[str, object]:
    try:
        parsed = json.loads(value, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"{value!r} is not valid JSON ({error}); expected {shape}") from None
    if not isinstance(parsed, dict) or not parsed:
        raise ValueError(f"{value!r} contains no topic; expected {shape}")
    return _unique([(topic(name), content) for name, content in parsed.items()])


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """The pairs as a dict. One of two values for the same key would be dropped."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r} occurs twice")
    return unique


def _whole(value: object, minimum: int, maximum: int = LONG_MAX) -> int | None:
    """`value` if it is a whole number (and not a bool) from `minimum` to `maximum`."""
    return value if type(value) is int and minimum <= value <= maximum else None


def assign(value: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`: the partitions to read."""
    shape = '{"orders": [0, 1]}'
    partitions = set()
    for name, numbers in _json(value, shape).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError(f"topic {name!r} has no list of partitions; expected {shape}")
        for partition in numbers:
            if _whole(partition, 0, INT_MAX) is None:
                raise ValueError(f"{partition!r} of topic {name!r} is not a partition number; expected {shape}")
            partitions.add(TopicPartition(name, partition))
    return tuple(sorted(partitions))


def _by_partition(value: str, shape: str, minimum: int, what: str) -> dict[TopicPartition, int]:
    offsets = {}
    for name, partitions in _json(value, shape).items():
        if not isinstance(partitions, dict) or not partitions:
            raise ValueError(f"topic {name!r} has no partitions; expected {shape}")
        for number_, content in partitions.items():
            if not re.fullmatch("[0-9]{1,9}", number_):
                raise ValueError(f"{number_!r} of topic {name!r} is not a partition number; expected {shape}")
            if (whole := _whole(content, minimum)) is None:
                raise ValueError(
                    f"{content!r} (topic {name!r}, partition {number_}) is not a valid {what}; expected {shape}"
                )
            if (partition := TopicPartition(name, int(number_))) in offsets:
                raise ValueError(f"partition {int(number_)} of topic {name!r} occurs twice")
            offsets[partition] = whole
    return offsets


def starting_offsets(value: str) -> str | LatestMinus | dict[TopicPartition, int]:
    """A keyword for all partitions, or an offset for each (-2 earliest, -1 latest)."""
    word = value.strip().lower()
    if before_latest := re.fullmatch(_LATEST_MINUS, word):
        return LatestMinus(int(before_latest["offsets"]))
    match word:
        case "earliest" | "latest" | "committed" | "committed-or-earliest" | "committed-or-latest":
            return word
        case _:
            shape = (
                "earliest, latest, latest-100, committed, committed-or-earliest, committed-or-latest or "
                '{"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest)'
            )
            if not value.lstrip().startswith("{"):
                raise ValueError(f"{value!r} is none of its values; expected {shape}")
            return _by_partition(value, shape, EARLIEST, "offset")


def ending_offsets(value: str) -> Literal["latest"] | dict[TopicPartition, int]:
    """`latest`, or an offset for each partition (-1 latest)."""
    if value.strip().lower() == "latest":
        return "latest"
    return _by_partition(value, 'latest or {"orders": {"0": 50, "1": -1}} (-1 latest)', LATEST, "offset")


def timestamps(value: str) -> dict[TopicPartition, int]:
    """A timestamp for each partition, in milliseconds since 1970."""
    return _by_partition(value, '{"orders": {"0": 1700000000000}} (milliseconds since 1970)', 0, "timestamp")
