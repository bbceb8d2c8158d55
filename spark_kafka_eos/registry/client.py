"""A schema registry: confluent-kafka's client, with its options under their own names.

One client per process and registry, with what was read by id: a schema never changes under its id, in its context. The
latest version of a subject is asked for each time. An id that the registry does not know is asked for again after half
a minute, so that damaged records do not flood it, and a schema that arrives late is found. After a hundred such ids in
half a minute, no other new one is asked for until the half minute is over: whoever can write records could keep each
batch waiting for answers.
"""

from __future__ import annotations

import base64
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import unquote, urlsplit
from uuid import UUID

from confluent_kafka.schema_registry import RegisteredSchema, Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from spark_kafka_eos.errors import ConfigurationError, RegistryError
from spark_kafka_eos.kafka.auth.secret import Secret
from spark_kafka_eos.registry.rules import SchemaRule, rules_of

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]
References = Mapping[str, tuple[str, int]]  # of a schema: the name in it, and the subject and version behind that
_LOGIN = "basic.auth.user.info"
_UNKNOWN_AGAIN = 30.0  # seconds
ANSWER_S = 30  # unless the client's own option says otherwise: it waits for ever
_MOST_SESSIONS = 16
_MOST_UNKNOWN = 100  # ids in `_UNKNOWN_AGAIN`: each is one request, so about half a second of a batch, of a task
MOST_REFERENCES = 100  # of a schema: each is one request, and the largest that people write have some dozens
LARGEST_TEXT = 1_000_000  # characters of a schema with its references: some seconds to parse; most have some thousand
_LARGEST_ID = 2**31 - 1  # registries answer a larger one as a wrong path, not as an unknown schema
_SERIALIZED = "serialized"  # the form to ask for: Protobuf files are .proto text otherwise, or what was registered
_FAILS = 500  # HTTP's status of a registry that cannot make a descriptor; one that is down has others
_REFUSES = {409, 422}  # HTTP's statuses for a schema that is not compatible, not valid or not to be written now
_BUSY = {408, 429}  # HTTP's statuses of who may be asked again
_UNREACHABLE = "Check that it is up, that its URL is right, and that the driver and the executors reach it."
_NOT_FOUND = {40401, 40402, 40403}  # subject, version, schema
_CONTEXT = re.compile(r":\.[^:]*:")  # before a subject's name; each context has ids and subjects of its own
_T = TypeVar("_T")
_Read = TypeVar("_Read", bound=Schema | RegisteredSchema)
_Fetch = Callable[[SchemaRegistryClient, str | None], _Read]  # with the form to ask for


class UnknownSchema(LookupError):
    """The registry has no schema with this id, or no such subject or version."""


class NotAsked(UnknownSchema):
    """The registry was not asked for this id, because it did not know many others just before."""


class TooLargeSchema(Exception):
    """The schema, with what it refers to, is larger than anybody needs. The text says in what."""


@dataclass(frozen=True)
class SchemaText:
    """A schema as the registry has it, with the schemas that it refers to, in the order in which they build on each
    other: pairs of name and text. `rules` are those that clients run.
    """

    kind: SchemaType
    text: str
    references: tuple[tuple[str, str], ...] = ()
    rules: tuple[SchemaRule, ...] = ()


class SubjectVersion(NamedTuple):
    """A schema as a version of a subject. The registry says in which context it found the subject."""

    subject: str
    schema_id: int
    schema: SchemaText


@dataclass(frozen=True)
class Registry:
    """Where a registry is and how to log in. Shows no more than its hosts, and pickles, for the executors."""

    options: tuple[tuple[str, Secret], ...]

    @classmethod
    def of(cls, options_or_url: str | Mapping[str, Any] | Registry) -> Registry:
        """From a URL, or from the client's options. Raises ConfigurationError."""
        if isinstance(options_or_url, Registry):
            return options_or_url
        options = {"url": options_or_url} if isinstance(options_or_url, str) else dict(options_or_url)
        options["url"], login = _addresses(str(options.get("url", "")))
        if login and options.setdefault(_LOGIN, login) != login:
            raise ConfigurationError(_LOGIN, "the URL has a login, too", action="Give one of them.")
        return cls(tuple((name, Secret(value)) for name, value in sorted(options.items())))

    def __hash__(self) -> int:
        return hash(self.hosts)  # an option of the client may be a mapping

    def __repr__(self) -> str:
        return f"Registry({self.hosts})"

    @property
    def hosts(self) -> str:
        url = str(dict(self.options)["url"].reveal())
        return ",".join(urlsplit(address).netloc for address in url.split(","))

    @property
    def session(self) -> Session:
        """This process's session. Raises ConfigurationError for options that the client refuses."""
        with _sessions_lock:
            if self not in _sessions:
                if len(_sessions) == _MOST_SESSIONS:  # a function among the options is another one in each task
                    del _sessions[next(iter(_sessions))]  # the oldest; another thread may use it still
                _sessions[self] = Session(self)
            return _sessions[self]


def _addresses(url: str) -> tuple[str, str]:
    """The addresses of `url` without their login, and that, "" for none: the HTTP client writes addresses to its log.
    Raises ConfigurationError, which shows nothing of them: what follows a password may be a part of it.
    """
    addresses, logins = zip(*(_address(part.strip()) for part in url.split(",")), strict=True)
    if set(logins) - {logins[0], ""}:
        raise ConfigurationError(
            "url",
            "the addresses of the schema registry have different logins, and the client uses one for all",
            action=f"Give it as {_LOGIN}.",
        )
    return ",".join(addresses), logins[0]


def _address(text: str) -> tuple[str, str]:
    with suppress(ValueError):  # its text may have the address
        parts = urlsplit(text)
        login, _, host = parts.netloc.rpartition("@")
        bare = parts._replace(netloc=host)
        _ = bare.port  # raises ValueError if it is no number
        if bare.scheme in {"http", "https"} and bare.hostname and "@" not in bare.geturl():
            user, _, password = login.partition(":")
            return bare.geturl(), f"{unquote(user)}:{unquote(password)}" if login else ""
    raise ConfigurationError(
        "url",
        "a schema registry needs a URL that starts with http:// or https://, or several, with commas between them",
        action=f"In a login in a URL, write signs such as / ? # @ and the comma as %2F, or give it as {_LOGIN}.",
    )


_sessions: dict[Registry, Session] = {}  # of this process
_sessions_lock = threading.Lock()


def close_sessions() -> None:
    """Close this process's connections to registries."""
    with _sessions_lock:
        while _sessions:
            _sessions.popitem()[1].close()


class Session:
    def __init__(self, registry: Registry) -> None:
        self._hosts = registry.hosts
        self._lock = threading.Lock()
        self._has_descriptors = True  # of Protobuf, as far as it was seen
        # By context and id, or by GUID; those of Protobuf as descriptors, if they were asked for so.
        self._schemas: dict[tuple[str, int | UUID, bool], SchemaText | TooLargeSchema] = {}
        self._unknown: dict[tuple[str, int | UUID, bool], float] = {}  # when asked for, of the last `_MOST_UNKNOWN`
        options = {name: value.reveal() for name, value in registry.options}
        try:
            self._client = SchemaRegistryClient({"timeout": ANSWER_S, **options})
        except Exception as error:  # noqa: BLE001 - of the HTTP library, whose package depends on the client's release
            # The client's texts name options, not their values, but the HTTP library's show a proxy's URL.
            reason = type(error).__name__ if "proxy" in options else error
            raise ConfigurationError("registry", f"the registry's client refuses its options: {reason}") from None

        # Once nobody has the session any more, if not before.
        self.close = weakref.finalize(self, getattr(self._client, "close", lambda: None))  # it is there since 2.15

    def schema(self, key: int | UUID, *, subject: str | None = None, serialized: bool = False) -> SchemaText:
        """The schema with this id, in the context of `subject`, or with this GUID; `serialized` asks for a Protobuf
        file as a descriptor instead of its text. Raises UnknownSchema, NotAsked, TooLargeSchema and RegistryError.
        """
        place = (_context(subject), key, serialized)
        schema = self._schemas.get(place)
        if isinstance(schema, TooLargeSchema):
            raise schema
        if schema is not None:
            return schema
        since = time.monotonic() - _UNKNOWN_AGAIN
        if self._unknown.get(place, since) > since or (isinstance(key, int) and key > _LARGEST_ID):
            raise UnknownSchema(f"schema {key}")
        if len(self._unknown) >= _MOST_UNKNOWN:
            self._unknown = {missing: asked for missing, asked in self._unknown.items() if asked > since}
            if len(self._unknown) >= _MOST_UNKNOWN:
                raise NotAsked(f"schema {key}")
        return self._asked(key, subject, serialized)

    def _asked(self, key: int | UUID, subject: str | None, serialized: bool) -> SchemaText:
        """As `schema`, from the registry as it is now."""
        place = (_context(subject), key, serialized)
        try:
            schema = (
                self._by_guid(key, subject, serialized)
                if isinstance(key, UUID)
                else self._by_id(key, subject, serialized)
            )
        except UnknownSchema:
            self._unknown[place] = time.monotonic()
            raise
        except TooLargeSchema as error:
            self._schemas[place] = error
            raise
        self._schemas[place] = schema
        return schema

    def _by_id(self, key: int, subject: str | None, serialized: bool) -> SchemaText:
        def ask(within: str | None) -> SchemaText:
            read = self._read(lambda client, form: client.get_schema(key, within, fmt=form), serialized)
            return self._text(read, subject, serialized)

        if subject:  # so that the registry looks in its context, and asks for rights on nothing else
            with suppress(UnknownSchema):
                return self._ask(f"schema {key}", lambda: ask(subject))
        # Some registries have an id only under its own subjects: in the same context it is the same schema.
        return self._ask(f"schema {key}", lambda: ask(_context(subject) or None))

    def _by_guid(self, key: UUID, subject: str | None, serialized: bool) -> SchemaText:
        def ask() -> SchemaText:
            read = self._read(lambda client, form: client.get_schema_by_guid(str(key), fmt=form), serialized)
            return self._text(read, subject, serialized)

        # A registry that has no GUIDs answers that there is no such path, so it does not have this one.
        return self._ask(f"schema {key}", ask, any_404=True)

    def latest(self, subject: str) -> SubjectVersion:
        """The latest version of `subject`. Raises UnknownSchema, TooLargeSchema and RegistryError."""

        def fetch(client: SchemaRegistryClient, form: str | None) -> RegisteredSchema:
            return client.get_latest_version(subject, fmt=form)

        return self._version(subject, fetch)

    def versions(self, subject: str) -> Iterator[SubjectVersion]:
        """The versions of `subject`, the newest first, without those that are too large or not there any more. Raises
        UnknownSchema and RegistryError.
        """
        numbers = self._ask(f"subject {subject!r}", lambda: self._fetched(lambda client: client.get_versions(subject)))
        for number in sorted(numbers, reverse=True):

            def fetch(client: SchemaRegistryClient, form: str | None, number: int = number) -> RegisteredSchema:
                return client.get_version(subject, number, fmt=form)

            with suppress(UnknownSchema, TooLargeSchema):
                yield self._version(subject, fetch)

    def _version(self, subject: str, fetch: _Fetch[RegisteredSchema]) -> SubjectVersion:
        def ask() -> SubjectVersion:
            version = self._fetched(lambda client: fetch(client, None))
            serialized = version.schema.schema_type == "PROTOBUF"
            version = self._as_descriptor(version, fetch)
            where = version.subject or subject
            return SubjectVersion(where, cast(int, version.schema_id), self._text(version.schema, where, serialized))

        return self._ask(f"subject {subject!r}", ask)

    def given(self, text: str, kind: SchemaType, references: References, subject: str | None) -> SchemaText:
        """A schema that the registry need not have, of the context of `subject`, with what it refers to. Raises like
        `latest`.
        """
        schema = _schema(text, kind, references)
        return self._ask("what the schema refers to", lambda: self._text(schema, subject, kind == "PROTOBUF"))

    def registered(self, subject: str, text: SchemaText, references: References, *, register: bool) -> SubjectVersion:
        """A schema as it is under `subject`, where it is registered if `register`. Raises like `latest`, and
        ConfigurationError if the registry refuses the schema.
        """
        schema = _schema(text.text, text.kind, references)

        def ask() -> int:
            try:
                if register:
                    return self._fetched(lambda client: client.register_schema(subject, schema))
                return cast(int, self._fetched(lambda client: client.lookup_schema(subject, schema)).schema_id)
            except SchemaRegistryError as error:
                if error.http_status_code not in _REFUSES:
                    raise
                raise ConfigurationError(
                    "schema",
                    f"the registry at {self._hosts} refuses it under the subject {subject!r}: {error.error_message}",
                    action="Change the schema, or what the subject's compatibility and mode allow.",
                ) from None

        schema_id = self._ask(f"subject {subject!r}", ask)
        # The client answers with what it was given, without the rules. The registry knows the id by now, even if it did
        # not when a record had it.
        return SubjectVersion(subject, schema_id, self._asked(schema_id, subject, text.kind == "PROTOBUF"))

    def _read(self, fetch: _Fetch[_Read], serialized: bool) -> _Read:
        """What the registry answers; with `serialized`, a Protobuf file as a descriptor, if it has one."""
        answer = self._fetched(lambda client: fetch(client, None))
        return self._as_descriptor(answer, fetch) if serialized else answer

    def _as_descriptor(self, answer: _Read, fetch: _Fetch[_Read]) -> _Read:
        """The registry's answer, or if that has the text of a .proto file, the one with its descriptor. Apicurio 3 has
        only the text: asked for more, it fails, or answers with a descriptor's bytes as if they were text. It is not
        asked again, because the client repeats what fails for some seconds.
        """
        if not _is_proto_text(answer):
            return answer
        from spark_kafka_eos.registry.proto_text import is_readable

        readable = is_readable(_of(answer).schema_str or "")
        if readable and not self._has_descriptors:
            return answer
        try:
            serialized = self._fetched(lambda client: fetch(client, _SERIALIZED))
        except SchemaRegistryError as error:
            if error.http_status_code != _FAILS or not readable:
                raise
            serialized = answer
        self._has_descriptors = not _is_proto_text(serialized)
        return serialized if self._has_descriptors else answer

    def _fetched(self, fetch: Callable[[SchemaRegistryClient], _T]) -> _T:
        """What the registry answers now. The client would repeat what it has read before, in whatever form that was."""
        with self._lock:
            self._client.clear_caches()  # type: ignore[no-untyped-call]
            return fetch(self._client)

    def _text(self, schema: Schema, subject: str | None, serialized: bool) -> SchemaText:
        kind, text = cast(SchemaType, schema.schema_type or "AVRO"), schema.schema_str or ""
        references: dict[str, str] = {}
        room = LARGEST_TEXT - len(text)
        self._collect(schema.references or [], subject, serialized, into=references, begun=set(), room=room)
        return SchemaText(kind, text, tuple(references.items()), rules_of(schema.rule_set))

    def _collect(
        self,
        references: list[SchemaReference],
        subject: str | None,
        serialized: bool,
        *,
        into: dict[str, str],
        begun: set[str],
        room: int,
    ) -> int:
        """Put the texts of what a schema of `subject` refers to into `into`, each after those that it refers to;
        returns the room that is left, of `room` characters. Those that were `begun` are not read again, so that they
        may go round in a circle.
        """
        if room < 0:
            raise TooLargeSchema(f"it has more than {LARGEST_TEXT:,} characters with what it refers to")
        for reference in references:
            if reference.name in begun:
                continue
            begun.add(str(reference.name))
            if len(begun) > MOST_REFERENCES:
                raise TooLargeSchema(f"it refers to more than {MOST_REFERENCES} others")
            text, more, place = self._referred(reference, subject, serialized)
            room = self._collect(more, place, serialized, into=into, begun=begun, room=room - len(text))
            into[str(reference.name)] = text
        return room

    def _referred(
        self, reference: SchemaReference, subject: str | None, serialized: bool
    ) -> tuple[str, list[SchemaReference], str]:
        """The text behind a reference of a schema of `subject`, its own references, and its subject: a name without a
        context is in the context of the schema. It is there also if its version was deleted since.
        """
        name, version = str(reference.subject), cast(int, reference.version)
        place = name if _context(name) else _context(subject) + name
        read = self._read(
            lambda client, form: client.get_version(place, version, deleted=True, fmt=form), serialized
        ).schema
        return read.schema_str or "", read.references or [], place

    def _ask(self, what: str, ask: Callable[[], _T], *, any_404: bool = False) -> _T:
        """Ask the registry. What is missing in it is UnknownSchema; everything else is not the record's fault."""
        try:
            return ask()
        except (TooLargeSchema, ConfigurationError):
            raise
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status == 404 and (any_404 or error.error_code in _NOT_FOUND):
                raise UnknownSchema(what) from None
            did, action = _failure(status)
            reason = f"HTTP {status}, error code {error.error_code}: {error.error_message}"
        except Exception as error:  # noqa: BLE001 - of the HTTP library, whose package depends on the client's release
            did, action = "did not answer", _UNREACHABLE
            reason = type(error).__name__
        raise RegistryError(f"the schema registry at {self._hosts} {did} for {what} ({reason})", action=action)


def _failure(status: int) -> tuple[str, str]:
    """What a registry did that answers with this status, and what to do."""
    if status in {401, 403}:
        return "refused the request", "Check that the credentials are right, and may read it, or with register write."
    if status in _BUSY:
        return "is too busy", "Try again later, or with fewer tasks at a time."
    if status < 500:
        return "refused the request", "Check that its URL is right, with its path, and that it has Confluent's API."
    return "failed at the request", _UNREACHABLE


def _context(subject: str | None) -> str:
    """The context that a subject names, with its colons; "" for the registry's default one."""
    context = _CONTEXT.match(subject or "")
    return context[0] if context else ""


def _schema(text: str, kind: SchemaType, references: References) -> Schema:
    made = [SchemaReference(name, subject, version) for name, (subject, version) in references.items()]
    return Schema(text, kind, made)


def _is_proto_text(answer: Schema | RegisteredSchema) -> bool:
    return _of(answer).schema_type == "PROTOBUF" and not is_descriptor(_of(answer).schema_str or "")


def _of(answer: Schema | RegisteredSchema) -> Schema:
    return answer.schema if isinstance(answer, RegisteredSchema) else answer


def is_descriptor(text: str) -> bool:
    """Whether a Protobuf schema can be a descriptor: the text of a file has signs that base64 has not."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True
