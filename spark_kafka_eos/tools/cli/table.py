"""A table that takes part, on the command line: which one, what it holds, and what settles a batch of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from spark_kafka_eos.ledger.refusal import Refuse
from spark_kafka_eos.participants.decide import Again, Finish
from spark_kafka_eos.participants.diagnosis import TableDiagnosis
from spark_kafka_eos.participants.participant import Participant, is_participant
from spark_kafka_eos.participants.token import Token, UnreadableToken, is_signed
from spark_kafka_eos.tools.cli import python_name
from spark_kafka_eos.tools.cli.terminal import Text
from spark_kafka_eos.tools.operators.settle import Settlement

_STEPS = {
    "commit": ("Committed the Kafka transaction", "commits the Kafka transaction"),
    "fence": (
        "Fenced the table, and took the transactional id: the open batch is in neither",
        "fences the table and takes the transactional id: an open batch is then in neither",
    ),
}

TableOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="The query's participant, or a function without arguments that returns it, by its name in Python.",
    ),
]


def participant_of(text: str) -> Participant:
    """The participant that --table names. Raises typer.BadParameter."""
    named = python_name.load(text, "--table")
    if isinstance(named, type) or not is_participant(named):
        named = named() if callable(named) else named
    if not is_participant(named):
        raise typer.BadParameter(
            f"{text!r} is a {type(named).__name__}, which has not the methods held and commit of a participant",
            param_hint="--table",
        )
    participant: Participant = named
    return participant


# -- what is shown


def table_lines(diagnosis: TableDiagnosis) -> Iterator[tuple[str, str]]:
    """What the table holds, what Kafka says of it, and what the next start will do: name and text of each line."""
    signed = ", signed" if is_signed(diagnosis.table.token) else ""
    yield "table", f"at version {diagnosis.table.version}: {_token(diagnosis.token)}{signed}"
    if isinstance(diagnosis.token, Token):
        of = diagnosis.token.identity
        yield (
            "its transaction",
            f"producer {of.producer_id}, epoch {of.epoch} of {of.transactional_id}: {_state(diagnosis)}",
        )
    if diagnosis.verdict is None or isinstance(diagnosis.verdict, Finish):  # else the verdict says it
        yield "next start", next_start(diagnosis)


def next_start(diagnosis: TableDiagnosis) -> str:
    """What a start does, by default one whose batch is the token's, in the words of `participants.decide`."""
    match diagnosis.verdict or diagnosis.standing:
        case Finish(token=token):
            return f"commits this transaction (EndTxn), because the table has {token}"
        case Again(reason=reason):
            return f"appends the batch to Kafka again: {reason}"
        case Refuse(reason=reason):
            return f"is refused: {reason}"
    return (
        "goes on: table and Kafka have the same batches"
        if diagnosis.token is not None
        else "goes on as the ledger says"
    )


def _token(token: Token | UnreadableToken | None) -> str:
    match token:
        case Token():
            return str(token)
        case UnreadableToken(reason=reason):
            return f"a token that cannot be used, {reason}"
    return "no token"


def _state(diagnosis: TableDiagnosis) -> str:
    prepared = ", prepared" if isinstance(diagnosis.standing, Finish) else ""
    return f"{diagnosis.transaction}{prepared}"


def table_json(diagnosis: TableDiagnosis) -> dict[str, Any]:
    """The same as plain values."""
    token = diagnosis.token
    fields: dict[str, Any] = {"version": diagnosis.table.version, "signed": is_signed(diagnosis.table.token)}
    match token:
        case Token():
            of = token.identity
            fields["token"] = {
                "transactional_id": of.transactional_id,
                "producer_id": of.producer_id,
                "epoch": of.epoch,
                "query_id": token.query_id,
                "batch_id": token.batch_id,
                "records": token.records,
                "bytes": token.bytes,
            }
        case UnreadableToken(reason=reason):
            fields["token"] = {"unreadable": reason}
        case None:
            fields["token"] = None
    prepared = isinstance(diagnosis.standing, Finish)
    return {**fields, "transaction": diagnosis.transaction, "prepared": prepared, "next_start": next_start(diagnosis)}


# -- settling


def settlement_view(settlement: Settlement, *, done: bool) -> Text:
    """What was done, or would be, or why nothing can be."""
    if not settlement.settled:
        return Text(f"Cannot be settled here: {settlement.reason}. Nothing was changed. {settlement.action}".rstrip())
    if settlement.step is None:
        return Text(f"There is nothing to settle: {settlement.reason}.")
    did, does = _STEPS[settlement.step]
    return Text(f"{did}: {settlement.reason}." if done else f"--settle {does}: {settlement.reason}.")


def settlement_json(settlement: Settlement, *, done: bool) -> dict[str, Any]:
    """The same as plain values."""
    done = done and settlement.settled and settlement.step is not None
    fields = {"step": settlement.step, "settled": settlement.settled, "done": done}
    return {**fields, "reason": settlement.reason, "action": settlement.action}
