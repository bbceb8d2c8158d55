---------------------------- MODULE TableAndTopic ----------------------------
(***************************************************************************)
(* A table takes part in the shared transaction: each micro-batch is in    *)
(* the table and in the topic, or in neither.                              *)
(*                                                                         *)
(* This is two-phase commit, with the table's commit as the decision.      *)
(* Everything is appended to the Kafka transaction, which is then          *)
(* prepared.  The table commits its rows together with a token, which      *)
(* names the transaction: producer epoch and batch.  Then EndTxn(commit)   *)
(* is sent, by the driver, or by any later one that finds the token.       *)
(*                                                                         *)
(* The table has a version, which counts its commits, and commits only if  *)
(* it still has the version that the writer expects (compare-and-set).  A  *)
(* fence is a commit without rows, which keeps the token: no commit that   *)
(* expects an older version can follow it.                                 *)
(*                                                                         *)
(* The drivers' steps are those of SharedTransaction; here is what the     *)
(* table adds to them.  Rows that are computed again may differ: the rows  *)
(* of a batch are its layout, the records of each output partition, and a  *)
(* run may have every layout.  So "the same rows" can be stated.           *)
(*                                                                         *)
(* A commit of the table without an answer goes into `sent`.  Like a       *)
(* request in `late`, it is applied at any time later, or never.           *)
(*                                                                         *)
(* Outside of the model: a table that loses commits or shows outdated      *)
(* ones, a table that several queries write.                               *)
(***************************************************************************)
EXTENDS SharedTransaction

CONSTANTS
    TableGuards,  \* the rules that are followed
    TableLate     \* how often a commit of the table is not answered

AllTableGuards == {
    "LookAtTable",           \* Nothing sends InitProducerId before it has read the table.
    "TableFirst",            \* A look reads the table before it asks the coordinator and reads the ledger.
    "FenceTable",            \* The table is fenced before InitProducerId, if its version is one that another run left.
    "CommitPrepared",        \* If the transaction that the token names is open, EndTxn(commit) ends it, whoever finds it.
    "ReadTableAgain",        \* A refusal counts only if the table's version did not change meanwhile.
    "TableAfterPrepare",     \* The table commits only after everything was appended to the transaction.
    "CommitOnlyAfterTable",  \* EndTxn(commit) is sent only if the table has the batch.
    "FenceUnknown",          \* A commit of the table without an answer is fenced before the transaction is aborted.
    "CommitUntilOver",       \* A transaction that the table has is not aborted as long as it is open.
    "OnlyOwnVersion",        \* A run goes on with its epoch only if the table's version is one that it left itself.
    "SameRows" }             \* A batch that the table has is appended again only with the same rows.

ASSUME TableGuards \subseteq AllTableGuards /\ Table

Follows(guard) == guard \in TableGuards

VARIABLES
    table,  \* version, and log: the token of each commit with rows, the last one of which it shows
    know,   \* what each run knows of it
    sent,   \* commits of the table without an answer, which may still be applied
    unsure, \* how many more may get none
    raced   \* whether a run took the id after another one had moved the table on, which it could not see

tableVars == <<table, know, sent, unsure, raced>>
allVars == <<vars, tableVars>>

(* The rows are those that the token stands for; a real one has their number and digest. *)
NoToken == [query |-> 0, batch |-> 0, from |-> 0, end |-> 0, epoch |-> None, rows |-> << >>]

Shown == IF table.log = << >> THEN NoToken ELSE table.log[Len(table.log)]

TokenOf(r) == [query |-> Of(r).query, batch |-> Batch(r), from |-> From(r), end |-> End(r), epoch |-> run[r].epoch,
               rows |-> run[r].rows]

Nothing ==
    [version |-> None,        \* the table's version, None if the run does not know it
     token |-> NoToken,       \* of the batch, if the table has it; after a look, what the table showed
     own |-> FALSE,           \* the run left this version itself
     has |-> "",              \* whether the table has the run's batch: "", "written" by itself, "found"
     unanswered |-> FALSE]    \* a commit was sent and not answered

Knows(r) == know[r].version # None

----------------------------------------------------------------------------
(* What a step of SharedTransaction does to what the run knows *)

(* It begins again with a look: the table comes first. Else it knows `then`. *)
Remembers(r, then) ==
    know' = [know EXCEPT ![r] =
               IF run'[r].at \in Ends \/ (run'[r].at = "describe" /\ run[r].at # "describe") THEN Nothing ELSE then]

TableUnchanged == UNCHANGED <<table, sent, unsure, raced>>

BeginsAgain(r) == [Cleared(run[r]) EXCEPT !.at = "describe", !.epoch = None]

----------------------------------------------------------------------------
(* Looking *)

(* held(): before DescribeTransactions. *)
ReadsTable(r) ==
    /\ ~Knows(r)
    /\ run[r].at = CASE ~Follows("LookAtTable") -> "commit"
                     [] Follows("LookAtTable") /\ Follows("TableFirst") -> "describe"
                     [] Follows("LookAtTable") /\ ~Follows("TableFirst") -> "glance"
    /\ know' = [know EXCEPT ![r] =
                  [Nothing EXCEPT !.version = table.version, !.token = Shown,
                                  !.has = IF run[r].at = "commit" /\ Shown.batch = Batch(r) THEN "found" ELSE ""]]
    /\ UNCHANGED vars /\ TableUnchanged

(* What the run saw of the table, and what the ledger has. *)
Ahead(r) == know[r].token.end > Entry.end
SameBatch(r) == LET token == know[r].token
                IN  <<token.query, token.batch, token.from, token.end>> = <<Of(r).query, Batch(r), From(r), End(r)>>
Fits(r) == LET token == know[r].token
           IN  <<token.query, token.batch, token.end>> = <<Entry.query, Entry.batch, Entry.end>>

(* The transaction that the table's token names is open, and everything is in it. *)
IsPrepared(r) ==
    /\ Follows("CommitPrepared")
    /\ Knows(r) /\ Ahead(r) /\ run[r].seen = <<"Ongoing", know[r].token.epoch>>

(* EndTxn(commit) for another process, and then everything from the beginning: the epoch is not this run's. *)
CommitsPrepared(r) ==
    /\ run[r].at = "glance" /\ IsPrepared(r)
    /\ LET answer == EndTxn(kafka, know[r].token.epoch, TRUE)
       IN  /\ answer.code # "CONCURRENT_TRANSACTIONS"
           /\ kafka' = answer.kafka
    /\ To(r, BeginsAgain(r))
    /\ Remembers(r, Nothing)
    /\ TableUnchanged
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

(* What the table says to the ledger's verdict. *)
TableVerdict(r) ==
    LET verdict == VerdictOn(r, Entry)
    IN  IF ~Knows(r) \/ verdict \notin {"write", "skip"} THEN "go on"
        ELSE IF verdict = "skip" THEN IF know[r].token.end >= Entry.end THEN "go on" ELSE "the table lost a commit"
        ELSE IF Fits(r) THEN "go on"
        ELSE IF SameBatch(r) THEN "append again"
        ELSE IF know[r].token.query # Of(r).query THEN "half of another query"
        ELSE IF Ahead(r) THEN "planned again"
        ELSE "the table lost a commit"

GlancesAlso(r) ==
    /\ run[r].at = "glance" /\ ~IsPrepared(r)
    /\ Knows(r) \/ ~Follows("LookAtTable")
    /\ LET verdict == TableVerdict(r)
       IN  IF verdict \in {"go on", "append again"}
           THEN /\ Glances(r)
                /\ Remembers(r, IF verdict = "append again" THEN [know[r] EXCEPT !.has = "found"]
                                ELSE [know[r] EXCEPT !.token = NoToken])
           ELSE /\ To(r, IF table.version = know[r].version \/ ~Follows("ReadTableAgain")
                         THEN [Ended(run[r], "refused") EXCEPT !.why = verdict]
                         ELSE BeginsAgain(r))
                /\ Remembers(r, Nothing)
                /\ Unchanged
    /\ TableUnchanged

----------------------------------------------------------------------------
(* Taking the id *)

Fenced(r) == know[r].own \/ ~Follows("FenceTable") \/ ~Knows(r)

(* After this, no other run can commit the table by what it knows. So its transaction may be aborted. A version that   *)
(* the run left itself needs no fence: whoever took the id since has fenced the table first, and moved it on.         *)
FencesTable(r) ==
    /\ run[r].at \in {"fence", "init"} /\ ~Fenced(r)
    /\ IF table.version = know[r].version
       THEN /\ table' = [table EXCEPT !.version = @ + 1]
            /\ know' = [know EXCEPT ![r].version = @ + 1, ![r].own = TRUE]
            /\ harmed' = (harmed \/ Disturbs(r, run[r].owned))
            /\ UNCHANGED run
       ELSE /\ To(r, BeginsAgain(r))
            /\ Remembers(r, Nothing)
            /\ UNCHANGED <<table, harmed>>
    /\ UNCHANGED <<kafka, late, checkpoints, budget, owner, sent, unsure, raced>>

FenceUnanswered(r) ==
    /\ run[r].at \in {"fence", "init"} /\ ~Fenced(r) /\ unsure > 0
    /\ unsure' = unsure - 1
    /\ sent' = sent \cup {[after |-> know[r].version, token |-> NoToken]}
    /\ To(r, BeginsAgain(r))
    /\ Remembers(r, Nothing)
    /\ UNCHANGED <<kafka, late, checkpoints, budget, owner, harmed, table, raced>>

TakesAlso(r) ==
    /\ Fenced(r)
    /\ Takes(r)
    /\ Remembers(r, know[r])
    /\ raced' = (raced \/ (kafka' # kafka /\ Knows(r) /\ table.version # know[r].version))
    /\ UNCHANGED <<table, sent, unsure>>

----------------------------------------------------------------------------
(* Appending *)

(* A run that wrote the table itself still has the rows. Another one computes them again. *)
WithItsRows(r) ==
    know[r].has = "written" => {run'[r].layout, run'[r].rows} \subseteq {<< >>, know[r].token.rows}

OtherRows(r) ==
    /\ Follows("SameRows")
    /\ know[r].has # "" /\ run[r].rows \notin {<< >>, know[r].token.rows}

RefusesRows(r) ==
    /\ run[r].at \in {"add ledger", "append entry"} /\ OtherRows(r)
    /\ LET answer == EndTxn(kafka, run[r].epoch, FALSE)
       IN  /\ answer.code # "CONCURRENT_TRANSACTIONS"
           /\ kafka' = answer.kafka
    /\ To(r, [Ended(run[r], "refused") EXCEPT !.why = "other rows"])
    /\ Remembers(r, Nothing)
    /\ TableUnchanged
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

----------------------------------------------------------------------------
(* Committing *)

Writes(r) == [after |-> know[r].version, token |-> TokenOf(r)]

(* A fence has no token. *)
Applied(request) ==
    [version |-> request.after + 1,
     log |-> IF request.token = NoToken THEN table.log ELSE Append(table.log, request.token)]

(* Rows that get into the table while another run lives, owns the id and expects the table as it is. *)
DisturbsTable(request) ==
    /\ request.token # NoToken /\ owner # None
    /\ know[owner].version = table.version /\ run[owner].epoch # request.token.epoch

MayWrite(r) ==
    /\ Knows(r) /\ know[r].has = "" /\ ~know[r].unanswered
    /\ \/ run[r].at = "commit"
       \/ run[r].at \in {"add ledger", "append entry", "commit offsets"} /\ ~Follows("TableAfterPrepare")

IsWritten(r, version) ==
    know' = [know EXCEPT ![r] = [@ EXCEPT !.version = version, !.token = TokenOf(r), !.has = "written",
                                          !.own = version = know[r].version + 1, !.unanswered = FALSE]]

(* Another run has moved the table on: this one ends, and aborts what is its own. *)
EndsBehind(r) ==
    LET answer == EndTxn(kafka, run[r].epoch, FALSE)
    IN  /\ answer.code # "CONCURRENT_TRANSACTIONS"
        /\ kafka' = answer.kafka
        /\ To(r, Ended(run[r], "fenced"))
        /\ Remembers(r, Nothing)

(* The rows and the token, if the table has the version that the run expects. *)
CommitsTable(r) ==
    /\ MayWrite(r)
    /\ IF table.version = know[r].version
       THEN /\ table' = Applied(Writes(r))
            /\ IsWritten(r, table.version + 1)
            /\ harmed' = (harmed \/ DisturbsTable(Writes(r)))
            /\ UNCHANGED <<kafka, run>>
       ELSE EndsBehind(r) /\ UNCHANGED <<table, harmed>>
    /\ UNCHANGED <<late, checkpoints, budget, owner, sent, unsure, raced>>

TableUnanswered(r) ==
    /\ MayWrite(r) /\ unsure > 0
    /\ unsure' = unsure - 1
    /\ sent' = sent \cup {Writes(r)}
    /\ know' = [know EXCEPT ![r].unanswered = TRUE]
    /\ UNCHANGED <<vars, table, raced>>

(* Was it applied? If not, a fence sees to it that it never will be. Then the batch is written anew. *)
SettlesTable(r) ==
    /\ know[r].unanswered
    /\ IF table.version = know[r].version
       THEN /\ IF Follows("FenceUnknown")
               THEN /\ table' = [table EXCEPT !.version = @ + 1]
                    /\ know' = [know EXCEPT ![r].version = @ + 1, ![r].own = TRUE, ![r].unanswered = FALSE]
               ELSE /\ know' = [know EXCEPT ![r].unanswered = FALSE]
                    /\ UNCHANGED table
            /\ To(r, [Cleared(run[r]) EXCEPT !.at = "abort"])
            /\ UNCHANGED kafka
       ELSE IF Shown = TokenOf(r)
       THEN IsWritten(r, table.version) /\ UNCHANGED <<kafka, run, table>>
       ELSE EndsBehind(r) /\ UNCHANGED table
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed, sent, unsure, raced>>

MayCommit(r) == (know[r].has # "" \/ ~Follows("CommitOnlyAfterTable")) /\ ~know[r].unanswered

(* EndTxn(commit) had no answer, and the transaction is still open: it is sent again, until it is answered or over. *)
DoubtsAlso(r) ==
    /\ run[r].at = "doubt"
    /\ IF Follows("CommitUntilOver") /\ Now = <<"Ongoing", run[r].epoch>>
       THEN Go(r, "commit") /\ Unchanged
       ELSE Doubts(r)
    /\ Remembers(r, know[r])
    /\ TableUnchanged

(* If another run left the table's version, it may have been a fence: the next batch begins with a look. *)
NotesAlso(r) ==
    /\ run[r].at = "note"
    /\ LET keeps == know[r].own \/ ~Follows("OnlyOwnVersion")
       IN  IF run[r].epoch # None /\ ~keeps
           THEN /\ To(r, [run[r] EXCEPT !.epoch = None, !.entry = NoEntry])
                /\ UNCHANGED <<kafka, late, checkpoints, budget, owner, harmed, know>>
           ELSE /\ Notes(r)
                /\ Remembers(r, [know[r] EXCEPT !.has = "", !.token = NoToken])
    /\ TableUnchanged

----------------------------------------------------------------------------
(* The network and the table *)

PreparedUnanswered(r) ==
    /\ run[r].at = "glance" /\ IsPrepared(r) /\ budget.late > 0
    /\ budget' = [budget EXCEPT !.late = @ - 1]
    /\ late' = late \cup {[Message(r, "EndTxn(commit)") EXCEPT !.epoch = know[r].token.epoch]}
    /\ UNCHANGED <<kafka, checkpoints, run, owner, harmed, tableVars>>

ArrivesAlso(request) ==
    /\ Arrives(request)
    /\ raced' = (raced \/ (request.api = "InitProducerId" /\ kafka' # kafka))
    /\ UNCHANGED <<table, know, sent, unsure>>

TableCommitArrives ==
    \E request \in sent :
      /\ sent' = sent \ {request}
      /\ IF table.version = request.after
         THEN table' = Applied(request) /\ harmed' = (harmed \/ DisturbsTable(request))
         ELSE UNCHANGED <<table, harmed>>
      /\ UNCHANGED <<kafka, late, checkpoints, run, budget, owner, know, unsure, raced>>

----------------------------------------------------------------------------

TableInit ==
    /\ Init
    /\ table = [version |-> 0, log |-> << >>]
    /\ know = [r \in 1..Runs |-> Nothing]
    /\ sent = {}
    /\ unsure = TableLate
    /\ raced = FALSE

(* The table adds nothing to these, or only when they may happen. *)
Beside(r) == Remembers(r, know[r]) /\ TableUnchanged

StartsAlso(r) == Starts(r) /\ Beside(r)
StartsAnewAlso(r) == StartsAnew(r) /\ Beside(r)
StartsFromCopyAlso(r) == StartsFromCopy(r) /\ Beside(r)
DescribesAlso(r) == Describes(r) /\ (Knows(r) \/ ~Follows("LookAtTable") \/ ~Follows("TableFirst")) /\ Beside(r)
AsksIfHeldAlso(r) == AsksIfHeld(r) /\ Beside(r)
FencesAlso(r) == Fences(r) /\ Fenced(r) /\ Beside(r)
LooksAgainAlso(r) == LooksAgain(r) /\ Beside(r)
ReadsAlso(r) == Reads(r) /\ Beside(r)
AddsPartitionsAlso(r) == AddsPartitions(r) /\ Beside(r)
AppendsAlso(r) == Appends(r) /\ WithItsRows(r) /\ Beside(r)
TaskRunsAgainAlso(r) == TaskRunsAgain(r) /\ Beside(r)
StageRunsAgainAlso(r) == StageRunsAgain(r) /\ Beside(r)
AddsLedgerAlso(r) == AddsLedger(r) /\ ~OtherRows(r) /\ Beside(r)
AppendsEntryAlso(r) == AppendsEntry(r) /\ ~OtherRows(r) /\ Beside(r)
CommitsOffsetsAlso(r) == CommitsOffsets(r) /\ Beside(r)
CommitsAlso(r) == Commits(r) /\ MayCommit(r) /\ Beside(r)
GivesUpAlso(r) == GivesUp(r) /\ Beside(r)
AsksWhyAlso(r) == AsksWhy(r) /\ Beside(r)
AbortsAlso(r) == Aborts(r) /\ Beside(r)
UnansweredAlso(r) == Unanswered(r) /\ (run[r].at = "commit" => MayCommit(r)) /\ WithItsRows(r) /\ Beside(r)
PausesAlso(r) == Pauses(r) /\ Beside(r)
MarkerIsWrittenAlso(p) == MarkerIsWritten(p) /\ UNCHANGED tableVars
TimesOutAlso == TimesOut /\ UNCHANGED tableVars

(* What a run does by itself. *)
TableStep(r) ==
    \/ ReadsTable(r) \/ CommitsPrepared(r) \/ FencesTable(r) \/ RefusesRows(r) \/ CommitsTable(r) \/ SettlesTable(r)
    \/ DescribesAlso(r) \/ GlancesAlso(r) \/ AsksIfHeldAlso(r) \/ FencesAlso(r) \/ TakesAlso(r) \/ LooksAgainAlso(r)
    \/ ReadsAlso(r) \/ AddsPartitionsAlso(r) \/ AppendsAlso(r) \/ AddsLedgerAlso(r) \/ AppendsEntryAlso(r)
    \/ CommitsOffsetsAlso(r) \/ CommitsAlso(r) \/ GivesUpAlso(r) \/ DoubtsAlso(r) \/ AsksWhyAlso(r) \/ AbortsAlso(r)
    \/ NotesAlso(r)

TableNext ==
    \/ \E r \in 1..Runs :
         \/ StartsAlso(r) \/ StartsAnewAlso(r) \/ StartsFromCopyAlso(r)
         \/ TableStep(r)
         \/ TaskRunsAgainAlso(r) \/ StageRunsAgainAlso(r) \/ UnansweredAlso(r) \/ PausesAlso(r)
         \/ TableUnanswered(r) \/ FenceUnanswered(r) \/ PreparedUnanswered(r)
    \/ \E request \in late : ArrivesAlso(request)
    \/ TableCommitArrives
    \/ \E p \in Partitions : MarkerIsWrittenAlso(p)
    \/ TimesOutAlso

TableSpec == TableInit /\ [][TableNext]_allVars

----------------------------------------------------------------------------
(* What must hold, beside the invariants of SharedTransaction *)

(* The table has each record once, one batch after the other. *)
TableInOrder ==
    \A i \in 1..Len(table.log) : table.log[i].from = IF i = 1 THEN 0 ELSE table.log[i - 1].end

(* The records of a token's batch that are in the topic. *)
InTopic(token) ==
    [p \in Outputs |-> SelectSeq(Written(p), LAMBDA record : token.from < record /\ record <= token.end)]

(* What is in the topic is in the table, with the same rows. *)
TableHasIt ==
    /\ Last.end <= Shown.end
    /\ \A i \in 1..Len(table.log) : table.log[i].end <= Last.end => InTopic(table.log[i]) = table.log[i].rows

(* The table is at most one batch ahead. Then its transaction is open, and whole, and EndTxn(commit) ends it. Or it is *)
(* over, and the batch can be appended again: it is planned in a checkpoint.                                          *)
CanBeCompleted ==
    Shown.end > Last.end =>
      /\ Shown.from = Last.end
      /\ Now = <<"Ongoing", Shown.epoch>> =>
           /\ \A p \in Outputs : kafka.log[p].pending = Shown.rows[p]
           /\ LastOf(kafka.log[Ledger].pending).end = Shown.end
           /\ LastOf(kafka.log[Group].pending).end = Shown.end
      /\ \E c \in 1..Len(checkpoints) :
           /\ checkpoints[c].query = Shown.query /\ Len(checkpoints[c].plan) >= Shown.batch
           /\ EndOf(checkpoints[c], Shown.batch - 1) = Shown.from /\ checkpoints[c].plan[Shown.batch] = Shown.end

(* Nobody aborts a transaction that the table has: by EndTxn, also one that comes late, or by InitProducerId. The       *)
(* latter only if another run has moved the table on since it was fenced, which its sender cannot see.                *)
DecisionStands ==
    Shown.end > Last.end =>
      /\ \A r \in 1..Runs : run[r].at = "abort" => run[r].epoch # Shown.epoch
      /\ \A request \in late : request.api = "EndTxn(abort)" => request.epoch # Shown.epoch
      /\ \A r \in 1..Runs :
           run[r].at = "init" /\ know[r].version = table.version => Now # <<"Ongoing", Shown.epoch>>

NothingLostInTable == (\E r \in 1..Runs : run[r].at = "finished") => Shown.end = Records

(* Rows that differ are a reason only if the transaction was open for too long, or two drivers started at once. *)
TableRefusedForAReason ==
    \A r \in 1..Runs : run[r].at = "refused" =>
      \/ Len(checkpoints) > 1
      \/ run[r].why = "rewound" /\ Last.run # r
      \/ run[r].why = "other rows" /\ (raced \/ budget.timeout < Timeouts)

TableNoPersonNeeded ==
    \A r \in 1..Runs :
      run[r].at \notin Ends \cup {"off"} =>
        Prepared(kafka) \/ kafka.state = "Ongoing" \/ ENABLED TableStep(r)
=============================================================================
