"""Plans how dead letters are sent back: which belong together, where each one goes, how often it has been there. Pure.

A replayed record is the original one. Its error headers are gone, and the header `__kafka_eos.replays` says how often
it was sent back: 1, and 2 if it became a dead letter again. So a record that nothing can cure does not go round for
ever.

Dead letters of one cause that were replayed equally often are a stream with a ledger of its own. So each of them is
sent back once, whichever causes an operator selects first, and those that were replayed too often stay where they are.

Signed ones (`ledgerKey`) are a stream for each key. Under which key an operator finds one depends on the keys that he
gives, and a stream's position says nothing of what was in another stream then:

- One whose key is given is sent in that key's stream. It was sent before if that stream's position says so, or if that
  of those does whose key was not known: they are sent last, so all that a key verified then had been sent as well.
- One whose key is not known may be anybody's, and is sent only where a name sends it; not at all if the ledger has a
  stream of a key that is not given: it may have been sent there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from spark_kafka_eos.dead_letters.causes import Cause
from spark_kafka_eos.dead_letters.headers import DeadLetter, Header, own_headers
from spark_kafka_eos.dead_letters.signature import claims, fingerprint, is_signed, matches, signature
from spark_kafka_eos.kafka.partitions import TopicPartition

REPLAYS = "__kafka_eos.replays"
_REPLAYS_MAC = "__kafka_eos.replays.mac"
_WITHOUT_TOPIC = frozenset({Cause.NO_TOPIC, Cause.TOPIC_NOT_ALLOWED})
MOST = 10  # replays that are distinguished, so that headers, which anybody may write, make few streams
MOST_STREAMS = 1_000  # of one plan: each is a transactional.id, and causes may be anybody's words
_DIGITS = 9  # what is longer is no number of replays

RecordPosition = tuple[TopicPartition, int]  # a dead letter's partition and offset
Left = Literal["replayed", "other key", "unsigned"]  # why one is not sent


class Stream(NamedTuple):
    """Dead letters of one cause that were replayed `replays` times before; `MOST` stands for all greater numbers.

    Those with a signature are apart from those that anybody may have written. `key` is the fingerprint of the key that
    verifies it, "" if none that is known does.
    """

    cause: str
    replays: int
    signed: bool = False
    key: str = ""

    @property
    def suffix(self) -> str:
        """What the transactional.id of its replay ends with."""
        return (
            f".{self.cause}.{self.replays}" + (".signed" if self.signed else "") + (f".{self.key}" if self.key else "")
        )

    @property
    def unknown(self) -> Stream:
        """The stream of those that nobody knows the key of."""
        return self._replace(key="")


def stream_of(
    cause: str, headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None
) -> Stream:
    """The stream of a dead letter, for who knows these secrets."""
    verifies = (fingerprint(secret) for secret in secrets if is_signed([secret], key, value, headers))
    return Stream(cause, replays_of(headers, secrets, key, value), claims(headers), next(verifies, ""))


def misses_key(stream: Stream, prefix: str, ids: Iterable[str], secrets: Collection[str]) -> bool:
    """Whether these dead letters, whose key is not known, may have been sent in the stream of a key that is not given.

    `prefix` is what the transactional ids begin with, `ids` are those that the ledger has.
    """
    if not stream.signed or stream.key:
        return False
    keyed, given = f"{prefix}{stream.suffix}.", set(map(fingerprint, secrets))
    return any(each.startswith(keyed) and each.removeprefix(keyed) not in given for each in ids)


def why_left(stream: Stream, *, max_replays: int, keys: bool, named: bool, misses_key: bool) -> Left | None:
    """Why its dead letters are not sent; `keys` and `named`: whether there are keys, and names of where they go."""
    if stream.replays >= max_replays:
        return "replayed"
    if misses_key:
        return "other key"
    return "unsigned" if keys and not stream.key and not named else None


def query_of(topic: str, topic_id: object) -> str:
    """What the ledgers call a replay of this topic. One that was created again has another id: all of it is new."""
    return f"replay of {topic} ({topic_id})"


def is_of(topic: str, query_id: str) -> bool:
    """Whether that is a replay of a topic of this name, whatever its id was."""
    return query_id.startswith(f"replay of {topic} (")


def replays_of(headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None) -> int:
    """How often the record was replayed, at most `MOST`; 0 if no header says so. With secrets, the number must be
    signed for this key and value.

    Without, anybody who writes the record may write the number. A large one keeps that record from being sent back.
    """
    last = next((value for name, value in reversed(headers) if name == REPLAYS), None) or b""
    if not last.isdigit() or len(last) > _DIGITS:
        return 0
    mac = next((value for name, value in reversed(headers) if name == _REPLAYS_MAC), None)
    if secrets and not matches(secrets, key, value, [(REPLAYS, last)], mac):
        return 0
    return min(int(last), MOST)


def replayed_headers(
    headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None
) -> list[Header]:
    """The headers of the record that is sent back: its own ones, and how often it was replayed, signed with the first
    of the secrets. What the record said of that before is gone.
    """
    own = [(name, content) for name, content in own_headers(headers) if name not in (REPLAYS, _REPLAYS_MAC)]
    count: Header = (REPLAYS, str(replays_of(headers, secrets, key, value) + 1).encode())
    signed = [(_REPLAYS_MAC, signature(secrets[0], key, value, [count]))] if secrets else []
    return [*own, count, *signed]


def destination(letter: DeadLetter, to: str | None) -> str | None:
    """The topic that a dead letter is sent to: `to`, else the one it could not be written to, else the one it was read
    from. None if nothing says so: a row without a topic of its own is not what was read.
    """
    if to is not None or letter.cause in _WITHOUT_TOPIC:
        return to
    return letter.output_topic or letter.topic


def partition_of(letter: DeadLetter, to: str | None, partitions: int) -> int | None:
    """The partition it was read from, if it returns to its topic; None if its key decides."""
    number = letter.partition
    returns = to is None and letter.output_topic is None
    return number if returns and number is not None and 0 <= number < partitions else None


def batches(positions: Sequence[RecordPosition], records: int) -> Iterator[Sequence[RecordPosition]]:
    """`positions` in the order of partitions and offsets, at most `records` at a time."""
    ordered = sorted(positions)
    for start in range(0, len(ordered), records):
        yield ordered[start : start + records]
