"""Plans how dead letters are sent back: which belong together, where each one goes, how often it has been there. Pure.

A replayed record is the original one, also its timestamp, unless its topic would refuse or soon delete it for that.
Its error headers are gone, and the header `__kafka_eos.replays` says how often it was sent back: 1, and 2 if it became
a dead letter again. So a record that nothing can cure does not go round for ever.

Dead letters of one cause that were replayed equally often are a stream with a ledger of its own. So each of them is
sent back once, whichever causes an operator selects first, and those that were replayed too often stay where they are.
The number is what the header says, whoever wrote it: one that depends on the keys that are given would move a dead
letter from stream to stream, and it would be sent in each. With keys, only a stream with a number that is signed is
left as replayed too often; what has a forged one there waits with it.

Signed ones (`ledgerKey`) are a stream for each key. Under which key an operator finds one depends on the keys that he
gives, and a stream's position says nothing of what was in another stream then:

- One whose key is given is sent in that key's stream. It was sent before if that stream's position says so, or if that
  of those does whose key was not known: they are sent last, so all that a key verified then had been sent as well.
- One whose key is not known may be anybody's, and is sent only where a name sends it; not at all if the ledger has a
  stream of a key that is not given: it may have been sent there.

Earlier versions of this module took a number that no given key had signed for 0. What they sent so is in no stream of
its own number, and their stream 0 does not say what was in it. So what may have been sent there is left: all of another
number at which their position (`counted_by_header`) has passed, until others of its stream are sent. As long as
anything of a cause is left for that reason, its stream 0 goes on as theirs.
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
_BY_HEADER = "by-header."  # begins the run id of a commit that counted replays by the header

RecordPosition = tuple[TopicPartition, int]  # a dead letter's partition and offset
Left = Literal["replayed", "other key", "unsigned", "earlier version"]  # why one is not sent


class Stream(NamedTuple):
    """Dead letters of one cause whose header says that they were replayed `replays` times before; `MOST` stands for all
    greater numbers.

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

    @property
    def never(self) -> Stream:
        """The stream of those that were never replayed, or whose number earlier versions did not believe."""
        return self._replace(replays=0)


def stream_of(
    cause: str, headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None
) -> Stream:
    """The stream of a dead letter, for who knows these secrets."""
    verifies = (fingerprint(secret) for secret in secrets if is_signed([secret], key, value, headers))
    return Stream(cause, replays_of(headers), claims(headers), next(verifies, ""))


def misses_key(stream: Stream, prefix: str, ids: Iterable[str], secrets: Collection[str]) -> bool:
    """Whether these dead letters, whose key is not known, may have been sent in the stream of a key that is not given.

    `prefix` is what the transactional ids begin with, `ids` are those that the ledger has.
    """
    if not stream.signed or stream.key:
        return False
    given = set(map(fingerprint, secrets))
    keyed = {f"{prefix}{each.suffix}." for each in (stream, stream.never)}
    return any(each.startswith(one) and each.removeprefix(one) not in given for each in ids for one in keyed)


def why_left(stream: Stream, *, keys: bool, named: bool, misses_key: bool) -> Left | None:
    """Why its dead letters are not sent, however often they were; `keys` and `named`: whether there are keys, and names
    of where they go.
    """
    if misses_key:
        return "other key"
    return "unsigned" if keys and not stream.key and not named else None


def query_of(topic: str, topic_id: object) -> str:
    """What the ledgers call a replay of this topic. One that was created again has another id: all of it is new."""
    return f"replay of {topic} ({topic_id})"


def is_of(topic: str, query_id: str) -> bool:
    """Whether that is a replay of a topic of this name, whatever its id was."""
    return query_id.startswith(f"replay of {topic} (")


def run_id_of(unique: str, *, by_header: bool) -> str:
    """The id of a run; `by_header`: nothing that an earlier version did is in doubt."""
    return f"{_BY_HEADER}{unique}" if by_header else unique


def counted_by_header(run_id: str | None) -> bool:
    """Whether the run of a stream's last commit said so: all in stream 0, up to there, has no other number."""
    return (run_id or "").startswith(_BY_HEADER)


def replays_of(headers: Sequence[Header]) -> int:
    """How often the record was replayed, at most `MOST`, as its last header of that name says; 0 if none does.

    Anybody who writes the record may write the number.
    """
    value = _last(headers, REPLAYS) or b""
    return min(int(value), MOST) if value.isdigit() and len(value) <= _DIGITS else 0


def is_number_signed(headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None) -> bool:
    """Whether one of the secrets signs the number of replays of this key and value; true without secrets, which leave
    only the number to go by.
    """
    number = (REPLAYS, _last(headers, REPLAYS))
    return not secrets or matches(secrets, key, value, [number], _last(headers, _REPLAYS_MAC))


def replayed_headers(
    headers: Sequence[Header], secrets: Sequence[str], key: bytes | None, value: bytes | None
) -> list[Header]:
    """The headers of the record that is sent back: its own ones, and how often it was replayed, signed with the first
    of the secrets. What the record said of that before is gone; with secrets, it counts only if it was signed.
    """
    own = [(name, content) for name, content in own_headers(headers) if name not in (REPLAYS, _REPLAYS_MAC)]
    before = replays_of(headers) if is_number_signed(headers, secrets, key, value) else 0
    count: Header = (REPLAYS, str(before + 1).encode())
    signed = [(_REPLAYS_MAC, signature(secrets[0], key, value, [count]))] if secrets else []
    return [*own, count, *signed]


def _last(headers: Sequence[Header], name: str) -> bytes | None:
    return next((value for each, value in reversed(headers) if each == name), None)


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


def timestamp_of(letter: DeadLetter) -> int | None:
    """The time of the record that was read, or of the row that could not be written, in ms since 1970; None if it is
    not known, or if the row had none and would have got that of writing.
    """
    was_read = letter.output_topic is None and letter.cause not in _WITHOUT_TOPIC
    return letter.timestamp if was_read and letter.timestamp is not None else letter.output_timestamp


def batches(positions: Sequence[RecordPosition], records: int) -> Iterator[Sequence[RecordPosition]]:
    """`positions` in the order of partitions and offsets, at most `records` at a time."""
    ordered = sorted(positions)
    for start in range(0, len(ordered), records):
        yield ordered[start : start + records]
