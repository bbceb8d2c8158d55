-------------------------- MODULE SharedTransaction --------------------------
(***************************************************************************)
(* The shared transaction: drivers write a query's micro-batches exactly   *)
(* once, each batch with its ledger entry and source offsets in one Kafka  *)
(* transaction, whatever dies, pauses, comes back, is lost or comes late.  *)
(*                                                                         *)
(* A run is one start of the query in a driver, until its end.  Its steps  *)
(* have the names of the code's (transaction.steps): one for each          *)
(* request to a broker, at the moment when the broker executes it.  A run  *)
(* that dies, or pauses, is one that takes no more steps, or takes the     *)
(* next one much later: both need no action of their own, because every    *)
(* run may stop anywhere, and the next one may start at any time.          *)
(*                                                                         *)
(* A request that has no answer goes into `late`.  It may arrive at any    *)
(* time, also after its sender sent it again, or never: so it stands for   *)
(* a lost request, a lost answer, a late request and a straggler.          *)
(*                                                                         *)
(* Each rule that the design needs is a guard, a name in `Guards`, so that *)
(* a model can leave it out, and show what happens then.                   *)
(*                                                                         *)
(* The source is one partition with the records 1..Records; a batch has    *)
(* the records from + 1 .. end.  Outside of the model: several sources,    *)
(* producer ids that run out, what brokers forget, coordinators and        *)
(* leaders that answer with outdated data, batch writes.                   *)
(***************************************************************************)
EXTENDS Brokers, TLC

CONSTANTS
    Records,   \* of the source
    Runs,      \* how many there may be
    Holds,     \* a run keeps its epoch from batch to batch (TransactionalWriter), or it does not (the sink)
    Table,     \* a table takes part: see TableAndTopic, which needs to know the rows that were appended
    Guards,    \* the rules that are followed
    \* How often each fault may happen in a behaviour:
    Late,      \* a request is not answered
    Again,     \* a task or a stage runs again
    Timeouts,  \* a transaction is open for longer than its timeout
    Lost,      \* a checkpoint
    Old        \* a checkpoint, restored from an older copy

AllGuards == {
    "Look",                  \* Nothing sends InitProducerId before it looked whose the id is and what is committed.
    "HeldIsAsked",           \* A held epoch is renewed only if the coordinator shows that it is still the current one.
    "Owner",                 \* Who committed the last entry takes the id only if it is as this commit left it.
    "EarlierRuns",           \* An entry names the runs that committed before its own.
    "LookAgain",             \* Before an InitProducerId without an answer is sent again, its sender looks again.
    "NamesEpoch",            \* Whose transaction the coordinator aborted names the epoch that this left.
    "KnownOpen",             \* That it was aborted by it counts only if the coordinator had said that it is open.
    "ReadAgain",             \* The ledger is read again after InitProducerId, if somebody may have committed.
    "Digest",                \* A batch is skipped only if the entry has its offsets, not only its number.
    "FirstAttempts",         \* The barrier: commit only what first attempts of tasks and stages appended.
    "Counts",                \* The barrier: commit only if all records were acknowledged.
    "RetryAppendsNothing",   \* A task that is not a first attempt appends nothing.
    "CommitOnly",            \* An unanswered EndTxn(commit) is never followed by an abort of its epoch.
    "NewEpoch",              \* A batch is tried again under a new epoch.
    "Fence" }                \* TV1 without verification: the old epoch is shut out of all partitions first.

ASSUME Guards \subseteq AllGuards

Has(guard) == guard \in Guards

VARIABLES
    kafka,        \* the brokers: see Brokers
    late,         \* requests without an answer, which may still arrive
    checkpoints,  \* all that there were: query, start, plan (the end of each batch), done (batches recorded as done)
    run,          \* each run's memory
    budget,       \* faults that may still happen
    owner,        \* the run that took the id last, None if nobody or a late request
    harmed        \* whether a late driver disturbed a live one

vars == <<kafka, late, checkpoints, run, budget, owner, harmed>>

Ends == {"finished", "refused", "fenced", "failed", "stopped"}

----------------------------------------------------------------------------
(* The ledger *)

(* What a batch commits. The record has all of it, the pointer lacks `earlier` and does not show the epoch. *)
NoEntry == [query |-> 0, batch |-> 0, from |-> 0, end |-> 0, serial |-> 0, run |-> 0, earlier |-> {}, epoch |-> None]

PointerOf(entry) == [entry EXCEPT !.earlier = {}, !.epoch = None]

LastOf(log) == IF log = << >> THEN NoEntry ELSE log[Len(log)]

Record == LastOf(kafka.log[Ledger].visible)
Pointer == LastOf(kafka.log[Group].visible)

(* The entry with the higher number of commit counts. *)
Entry == IF Pointer.serial > Record.serial THEN Pointer ELSE Record
Agreed == Pointer.serial = Record.serial /\ Record.serial > 0

(* spark_kafka_eos/ledger/verdicts.py *)
Verdict(entry, query, batch, from, end) ==
    IF entry = NoEntry THEN IF batch = 1 THEN "write" ELSE "never written"
    ELSE IF entry.query = query THEN
        CASE entry.batch = batch - 1 -> IF entry.end = from THEN "write" ELSE "moved"
          [] entry.batch = batch -> IF ~Has("Digest") \/ (entry.from = from /\ entry.end = end)
                                    THEN "skip" ELSE "planned again"
          [] entry.batch > batch -> "rewound"
          [] entry.batch < batch - 1 -> "gap"
    ELSE IF batch > 1 THEN "another query"
    ELSE IF entry.end = from THEN "write" ELSE "starts elsewhere"

----------------------------------------------------------------------------
(* Runs *)

Off ==
    [at |-> "off",            \* the next step
     why |-> "",              \* of a refusal
     checkpoint |-> 0,
     batch |-> 0,
     epoch |-> None,          \* that it holds
     entry |-> NoEntry,       \* the last one, if it holds an epoch
     seen |-> <<"", None>>,   \* whose the id is, as it looked
     under |-> None,          \* the epoch under which it read the ledger, if that may count
     unanswered |-> FALSE,    \* InitProducerId, or EndTxn, was sent and not answered
     starts |-> FALSE,        \* it takes the id after a look, and did not hold it before
     doubt |-> FALSE,         \* whether its commit was applied
     layout |-> << >>,        \* the records of each output partition, once encoded
     todo |-> {},             \* output partitions that are not appended yet
     acknowledged |-> 0,      \* records
     rows |-> << >>,          \* what the barrier let pass, if a table takes part
     slow |-> FALSE,          \* its transaction has been open for longer than its timeout
     open |-> FALSE,          \* TV1: the coordinator said that it is open, and each end that was sent has an answer
     again |-> FALSE,         \* a task or stage ran again
     owned |-> "never"]       \* for NoHarm: see below

Of(r) == checkpoints[run[r].checkpoint]
Batch(r) == run[r].batch
EndOf(c, n) == IF n = 0 THEN c.start ELSE c.plan[n]
From(r) == EndOf(Of(r), Batch(r) - 1)
End(r) == EndOf(Of(r), Batch(r))
VerdictOn(r, entry) == Verdict(entry, Of(r).query, Batch(r), From(r), End(r))

To(r, memory) == run' = [run EXCEPT ![r] = memory]
Go(r, at) == To(r, [run[r] EXCEPT !.at = at])

Now == <<kafka.state, kafka.epoch>>
Taken(epoch) == kafka.epoch # epoch

(* The coordinator aborted the transaction of `m` by itself, and nobody has a new epoch since.  In TV1, the next      *)
(* epoch may also be another driver's, which aborted a transaction of its own: it can be only if the one of `m` was   *)
(* not open when the other took the id.  In TV2, that other one's abort would have raised the epoch once more.        *)
GivenUp(m) ==
    /\ kafka.state \in {"PrepareAbort", "CompleteAbort"} /\ kafka.epoch = m.epoch + 1
    /\ TV = 2 \/ m.open \/ ~Has("KnownOpen")
AfterAbort(epoch) == IF Has("NamesEpoch") THEN epoch + 1 ELSE None

(* transaction/hold.py *)
LeftByRun(epoch, seen) ==
    \/ seen[1] = "CompleteCommit" /\ seen[2] \in {epoch, epoch + 1}
    \/ seen[1] = "Ongoing" /\ seen[2] = epoch  \* TV1: a late AddPartitionsToTxn of the batch
    \* TV1: that one, after its timeout; or a transaction of another driver, which aborted it
    \/ ~Has("KnownOpen") /\ seen[1] = "CompleteAbort" /\ seen[2] = epoch + 1
LeftByTake(before) ==
    \/ kafka.epoch = before
    \/ /\ kafka.state \in {"Empty", "PrepareAbort", "CompleteAbort"}
       /\ IF before = None THEN kafka.epoch = 0 ELSE kafka.epoch \in {before + 1, before + 2}

FenceNeeded == TV = 1 /\ ~Verification /\ Has("Fence")

Attempting == {"add partitions", "append", "add ledger", "append entry", "commit offsets", "commit", "abort"}

(* What a run forgets when its attempt ends, one way or the other. *)
Cleared(m) == [m EXCEPT !.layout = << >>, !.todo = {}, !.acknowledged = 0, !.rows = << >>, !.again = FALSE,
                        !.unanswered = FALSE, !.doubt = FALSE, !.starts = FALSE, !.seen = <<"", None>>, !.under = None]

Ended(m, how) == [Cleared(m) EXCEPT !.at = how, !.slow = FALSE, !.open = FALSE, !.epoch = None, !.entry = NoEntry]

(* Begins to append, with an epoch that was not used yet. *)
Appending(m) == [Cleared(m) EXCEPT !.at = IF TV = 1 THEN "add partitions" ELSE "append", !.todo = Outputs,
                                     !.slow = FALSE]

(***************************************************************************)
(* Who disturbed whom.  A driver is late if it took the id, and another    *)
(* one took it since.  It may take it again only if it looked before that, *)
(* so that it could not know.  `owned` is, for each run:                   *)
(*   never     it has not taken the id                                     *)
(*   own       it took the id and has not looked since                     *)
(*   looked    it took the id and has looked since                         *)
(*   overtaken, overtaken looked   the same, and then another one took it  *)
(*   saw       another one took it, and then it looked                     *)
(*   doubtful  the same, but what it saw may be what its own               *)
(*             InitProducerId, which was not answered, has left            *)
(* The sink, which keeps nothing from batch to batch, knows by the ledger  *)
(* that it took the id: a run of it that committed nothing yet starts.     *)
(***************************************************************************)
Looked(owned) ==
    CASE owned \in {"own", "looked"} -> "looked"
      [] owned \in {"overtaken", "overtaken looked", "saw", "doubtful"} -> "saw"
      [] owned = "never" -> owned

(* A look after an InitProducerId without an answer, which found what that request may have left: another driver's     *)
(* first InitProducerId leaves the same. Who `starts` may take the id nevertheless.                                   *)
LookedAgain(starts, owned) ==
    CASE owned = "own" -> "looked"
      [] owned = "overtaken" -> IF starts THEN "overtaken looked" ELSE "doubtful"
      [] owned \notin {"own", "overtaken"} -> owned

Overtaken(owned) ==
    CASE owned = "own" -> "overtaken"
      [] owned = "looked" -> "overtaken looked"
      [] owned \notin {"own", "looked"} -> owned

(* An InitProducerId without an answer uses up the look before it. *)
LookUsed(owned) ==
    CASE owned = "looked" -> "own"
      [] owned \in {"overtaken looked", "doubtful"} -> "overtaken"
      [] owned \notin {"looked", "overtaken looked", "doubtful"} -> owned

(* Whether InitProducerId of `r`, which changed something, disturbs the live owner; `owned` was when it was sent. *)
Disturbs(r, owned) ==
    /\ owner \notin {None, r}
    /\ run[owner].at \notin Ends
    /\ \/ owned \in {"overtaken", "saw"}
       \/ owned = "doubtful" /\ kafka.state # "Ongoing"  \* what is open now began after the look
       \/ owned = "own" /\ run[r].owned \notin {"own", "looked"}

OthersOvertaken(r, memory) ==
    run' = [s \in DOMAIN run |-> IF s = r THEN memory ELSE [run[s] EXCEPT !.owned = Overtaken(@)]]

----------------------------------------------------------------------------
(* Requests that may come late: what a run sends at each step *)

Message(r, api) ==
    [api |-> api, run |-> r, epoch |-> run[r].epoch, parts |-> {}, records |-> << >>, entry |-> NoEntry,
     owned |-> run[r].owned]

NewEntry(r) ==
    LET last == run[r].entry
    IN  [query |-> Of(r).query, batch |-> Batch(r), from |-> From(r), end |-> End(r), serial |-> last.serial + 1,
         run |-> r, epoch |-> run[r].epoch,
         earlier |-> IF Has("EarlierRuns") /\ last # NoEntry THEN ({last.run} \cup last.earlier) \ {r} ELSE {}]

(* The partitions that are left, and which one is next. *)
Left(r, layout) == {p \in run[r].todo : layout[p] # << >>}
NextOf(r, layout) == CHOOSE p \in Left(r, layout) : \A q \in Left(r, layout) : p <= q

(* The records of each partition in every way that a shuffle may distribute them; each keeps their order. *)
Layouts(r) ==
    IF run[r].layout # << >> THEN {run[r].layout}
    ELSE LET records == [i \in 1..(End(r) - From(r)) |-> From(r) + i]
         IN  {[p \in Outputs |-> SelectSeq(records, LAMBDA each : to[each] = p)] :
                to \in [(From(r) + 1)..End(r) -> Outputs]}

(* Those with something left to append. *)
Appendable(r) == {layout \in Layouts(r) : Left(r, layout) # {}}

Produced(r, layout) ==
    [Message(r, "Produce") EXCEPT !.parts = {NextOf(r, layout)}, !.records = layout[NextOf(r, layout)]]

Requests(r) ==
    CASE run[r].at = "init" -> {Message(r, "InitProducerId")}
      [] run[r].at = "add partitions" ->
           {[Message(r, "AddPartitionsToTxn") EXCEPT !.parts = Outputs]}
      [] run[r].at = "add ledger" ->
           {[Message(r, "AddPartitionsToTxn") EXCEPT !.parts = {Ledger, Group}]}
      [] run[r].at = "append" ->
           {Produced(r, layout) : layout \in Appendable(r)}
      [] run[r].at = "append entry" ->
           {[Message(r, "Produce") EXCEPT !.parts = {Ledger}, !.entry = NewEntry(r)]}
      [] run[r].at = "commit offsets" ->
           {[Message(r, "TxnOffsetCommit") EXCEPT !.entry = PointerOf(NewEntry(r))]}
      [] run[r].at = "commit" -> {Message(r, "EndTxn(commit)")}
      [] run[r].at = "abort" /\ ~FenceNeeded -> {Message(r, "EndTxn(abort)")}
      [] OTHER -> {}

Answered(m) ==
    CASE m.api = "InitProducerId" -> InitProducerId(kafka, m.epoch)
      [] m.api = "AddPartitionsToTxn" -> AddPartitions(kafka, m.epoch, m.parts)
      [] m.api = "Produce" /\ m.entry = NoEntry ->
           Produce(kafka, m.epoch, CHOOSE p \in m.parts : TRUE, m.records)
      [] m.api = "Produce" /\ m.entry # NoEntry -> Produce(kafka, m.epoch, Ledger, <<m.entry>>)
      [] m.api = "TxnOffsetCommit" -> CommitOffsets(kafka, m.epoch, m.entry)
      [] m.api = "EndTxn(commit)" -> EndTxn(kafka, m.epoch, TRUE)
      [] m.api = "EndTxn(abort)" -> EndTxn(kafka, m.epoch, FALSE)

The(set) == CHOOSE one \in set : TRUE

----------------------------------------------------------------------------
(* Starting, planning and recording: what Spark does *)

NextBatch(c) == IF Len(c.plan) > c.done THEN Len(c.plan) ELSE Len(c.plan) + 1

(* What `begin` does first. A held epoch that was not used yet needs no look: if another driver took the id, it is      *)
(* fenced. So is that of TV2 after a commit, and that of TV1 if there was nothing to write, as somebody else had.      *)
Begun(m, c, from, end) ==
    IF m.epoch # None /\ Verdict(m.entry, c.query, m.batch, from, end) = "write"
    THEN IF TV = 2 \/ m.entry.epoch # m.epoch THEN Appending(m)
         ELSE [m EXCEPT !.at = "ask if held", !.under = m.epoch]
    ELSE IF Has("Look") THEN [m EXCEPT !.at = "describe", !.epoch = None]
    ELSE [m EXCEPT !.at = "init", !.epoch = None]

(* The run's next batch is as planned in its checkpoint, or planned now; `all` are the checkpoints before that. *)
Plans(r, m, all) ==
    LET c == all[m.checkpoint]
        from == EndOf(c, m.batch - 1)
    IN  IF m.batch <= Len(c.plan)
        THEN /\ To(r, Begun(m, c, from, c.plan[m.batch]))
             /\ checkpoints' = all
        ELSE IF from = Records
        THEN /\ To(r, Ended(m, "finished"))
             /\ checkpoints' = all
        ELSE \E end \in (from + 1)..Records :
               /\ To(r, Begun(m, c, from, end))
               /\ checkpoints' = [all EXCEPT ![m.checkpoint].plan = Append(@, end)]

CanStart(r) == run[r].at = "off" /\ \A s \in 1..(r - 1) : run[s].at # "off"

StartsWith(r, all) ==
    LET c == all[Len(all)]
    IN  Plans(r, [Off EXCEPT !.checkpoint = Len(all), !.batch = NextBatch(c)], all)

Starts(r) ==
    /\ CanStart(r)
    /\ StartsWith(r, checkpoints)
    /\ UNCHANGED <<kafka, late, budget, owner, harmed>>

(* The checkpoint is lost: a new query starts where the group is committed. *)
StartsAnew(r) ==
    /\ CanStart(r) /\ r > 1 /\ budget.lost > 0
    /\ ~kafka.log[Group].open
    /\ StartsWith(r, Append(checkpoints,
         [query |-> checkpoints[Len(checkpoints)].query + 1, start |-> Pointer.end, plan |-> << >>, done |-> 0]))
    /\ budget' = [budget EXCEPT !.lost = @ - 1]
    /\ UNCHANGED <<kafka, late, owner, harmed>>

(* The checkpoint is restored from an older copy, which lacks the last batches. *)
StartsFromCopy(r) ==
    /\ CanStart(r) /\ r > 1 /\ budget.old > 0
    /\ LET c == checkpoints[Len(checkpoints)]
       IN  \E kept \in 0..(Len(c.plan) - 1) :
             StartsWith(r, Append(checkpoints, [c EXCEPT !.plan = SubSeq(c.plan, 1, kept),
                                                         !.done = IF @ < kept THEN @ ELSE kept]))
    /\ budget' = [budget EXCEPT !.old = @ - 1]
    /\ UNCHANGED <<kafka, late, owner, harmed>>

HasCommitted(r) == \E i \in 1..Len(Fate(kafka, Ledger)) : Fate(kafka, Ledger)[i].run = r

(* Spark records that the batch is done, and goes on; it stops a query if another one did. *)
Notes(r) ==
    /\ run[r].at = "note"
    /\ IF Of(r).done >= Batch(r)
       THEN /\ To(r, Ended(run[r], "stopped"))
            /\ UNCHANGED checkpoints
       ELSE Plans(r, [Cleared(run[r]) EXCEPT !.batch = @ + 1,
                                             !.epoch = IF Holds THEN @ ELSE None,
                                             !.entry = IF Holds THEN @ ELSE NoEntry,
                                             !.owned = IF Holds \/ HasCommitted(r) THEN @ ELSE "never"],
                     [checkpoints EXCEPT ![run[r].checkpoint].done = Batch(r)])
    /\ UNCHANGED <<kafka, late, budget, owner, harmed>>

----------------------------------------------------------------------------
(* Looking *)

Unchanged == UNCHANGED <<kafka, late, checkpoints, budget, owner, harmed>>

(* DescribeTransactions. It waits until the end of a transaction that is decided. *)
Describes(r) ==
    /\ run[r].at = "describe"
    /\ ~Prepared(kafka)
    /\ To(r, [run[r] EXCEPT !.at = "glance", !.seen = Now, !.owned = Looked(@)])
    /\ Unchanged

Untaken(r, entry) ==
    /\ ~(Has("EarlierRuns") /\ r \in entry.earlier)
    /\ Has("Owner") /\ entry.run = r /\ entry.epoch # None => LeftByRun(entry.epoch, run[r].seen)

(* Reads the ledger without waiting for open transactions, and decides. A refusal counts only if nobody's             *)
(* transaction began or ended meanwhile.                                                                              *)
Glances(r) ==
    /\ run[r].at = "glance"
    /\ LET m == run[r]
           verdict == VerdictOn(r, Entry)
       IN  To(r, CASE verdict = "write" ->
                        IF ~Untaken(r, Entry) THEN Ended(m, "fenced")
                        ELSE [m EXCEPT !.at = IF FenceNeeded THEN "fence" ELSE "init",
                                       !.under = IF m.seen[1] \in {"CompleteCommit", "CompleteAbort"} /\ Agreed
                                                 THEN m.seen[2] ELSE None,
                                       !.entry = Entry, !.starts = TRUE]
                   [] verdict = "skip" -> [Cleared(m) EXCEPT !.at = "note"]
                   [] verdict \notin {"write", "skip"} ->
                        IF Now = m.seen THEN [Ended(m, "refused") EXCEPT !.why = verdict]
                        ELSE [m EXCEPT !.at = "describe"])
    /\ Unchanged

----------------------------------------------------------------------------
(* Taking the id *)

(* Whether the held epoch is still the current one; if not, whether only the coordinator gave the transaction up. *)
AsksIfHeld(r) ==
    /\ run[r].at = "ask if held"
    /\ ~(Prepared(kafka) /\ Taken(run[r].epoch))
    /\ LET m == [run[r] EXCEPT !.owned = Looked(@)]
           next == IF FenceNeeded /\ m.under = None THEN "fence" ELSE "init"
       IN  To(r, IF ~Has("HeldIsAsked") \/ ~Taken(m.epoch) THEN [m EXCEPT !.at = next, !.seen = Now]
                 ELSE IF GivenUp(m)
                 THEN [m EXCEPT !.at = next, !.epoch = AfterAbort(@), !.seen = Now, !.under = None]
                 ELSE Ended(m, "fenced"))
    /\ Unchanged

(* TV1 without verification: all partitions join the old epoch's transaction, so that the markers of its abort shut   *)
(* the old epoch out of them. Who looked before asks again first, and looks again if the answer is another one. Who   *)
(* held the id before ends if another driver took it.                                                                 *)
Fences(r) ==
    /\ run[r].at = "fence"
    /\ LET m == [run[r] EXCEPT !.owned = Looked(@)]
           answer == AddPartitions(kafka, kafka.epoch, Partitions)
           same == IF m.starts THEN Now = m.seen ELSE kafka.epoch = m.seen[2]
       IN  IF ~same THEN /\ To(r, IF m.starts THEN [m EXCEPT !.at = "describe"] ELSE Ended(m, "fenced"))
                         /\ UNCHANGED kafka
           ELSE /\ IF kafka.epoch = None THEN UNCHANGED kafka
                   ELSE answer.code = "NONE" /\ kafka' = answer.kafka
                /\ To(r, [m EXCEPT !.at = "init", !.epoch = None, !.under = None])
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

(* InitProducerId. If a transaction is open, the first one aborts it, and the next one waits for its markers. *)
Takes(r) ==
    /\ run[r].at = "init" /\ ~run[r].unanswered
    /\ LET m == run[r]
           answer == InitProducerId(kafka, m.epoch)
           counts == m.under # None /\ answer.kafka.epoch = m.under + 1
       IN  /\ ~Prepared(kafka)
           /\ kafka' = answer.kafka
           /\ harmed' = (harmed \/ (kafka' # kafka /\ Disturbs(r, m.owned)))
           /\ CASE answer.code = "CONCURRENT_TRANSACTIONS" ->
                     UNCHANGED <<run, owner>>
                [] answer.code = "PRODUCER_FENCED" ->
                     To(r, Ended(m, "fenced")) /\ UNCHANGED owner
                [] answer.code = "NONE" ->
                     /\ owner' = r
                     /\ OthersOvertaken(r,
                          LET held == [m EXCEPT !.epoch = answer.kafka.epoch, !.owned = "own", !.open = FALSE]
                          IN  IF counts \/ (~Has("ReadAgain") /\ ~m.doubt) THEN Appending(held)
                              ELSE [held EXCEPT !.at = "read"])
    /\ UNCHANGED <<late, checkpoints, budget>>

(* InitProducerId was not answered: whose is the id, before it is sent again? Who held an epoch and names none ends    *)
(* in doubt.                                                                                                          *)
LooksAgain(r) ==
    /\ run[r].at = "init" /\ run[r].unanswered
    /\ LET m == run[r]
           before == m.seen[2]
           doubtful == Has("NamesEpoch") /\ m.epoch = None /\ ~m.starts /\ kafka.state = "Empty" /\ Taken(before)
           again == [m EXCEPT !.unanswered = FALSE]
       IN  To(r, IF ~Has("LookAgain") THEN again
                 ELSE IF ~LeftByTake(before) THEN Ended(m, "fenced")
                 ELSE IF doubtful THEN Ended(m, "failed")
                 ELSE [again EXCEPT !.owned = LookedAgain(m.starts, @)])
    /\ Unchanged

(* Reads the ledger as the owner: nobody else can commit any more. It waits for offsets that are pending; not for      *)
(* ever, if they came late in TV1 without verification: then the run ends, and the next one's fence ends them.        *)
Hangs == kafka.log[Group].open /\ kafka.state # "Ongoing" /\ ~Prepared(kafka)

Reads(r) ==
    /\ run[r].at = "read"
    /\ kafka.log[Group].open => Hangs
    /\ LET m == run[r]
           verdict == VerdictOn(r, Entry)
       IN  To(r, IF Hangs THEN Ended(m, "failed")
                 ELSE IF verdict = "write" THEN Appending([m EXCEPT !.entry = Entry])
                 ELSE IF Taken(m.epoch) THEN Ended(m, "fenced")
                 ELSE IF verdict = "skip"
                 THEN IF m.doubt THEN Ended(m, "failed")  \* CommitOutcomeUnknown: it was applied only now
                      ELSE [Cleared(m) EXCEPT !.at = "note", !.entry = Entry]
                 ELSE [Ended(m, "refused") EXCEPT !.why = verdict])
    /\ Unchanged

----------------------------------------------------------------------------
(* Appending *)

(* A request of a run was answered: `on` maps the next memory from an error code. CONCURRENT_TRANSACTIONS: it waits. *)
Asked(r, request, then) ==
    LET answer == Answered(request)
    IN  /\ answer.code # "CONCURRENT_TRANSACTIONS"
        /\ kafka' = answer.kafka
        /\ To(r, IF answer.code = "NONE" THEN then
                 ELSE [run[r] EXCEPT !.at = "ask why"])
        /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

AddsPartitions(r) ==
    /\ run[r].at = "add partitions"
    /\ Asked(r, The(Requests(r)), [run[r] EXCEPT !.at = "append", !.open = TRUE])

(* The barrier, when every task has reported. *)
Judged(r, m) ==
    IF \/ Has("FirstAttempts") /\ m.again
       \/ Has("Counts") /\ m.acknowledged # End(r) - From(r)
    THEN [Cleared(m) EXCEPT !.at = "abort"]
    ELSE [Cleared(m) EXCEPT !.at = IF TV = 1 THEN "add ledger" ELSE "append entry",
                            !.rows = IF Table THEN m.layout ELSE << >>]

TaskReported(r, before, layout, acknowledged) ==
    LET m == [before EXCEPT !.layout = layout, !.todo = Left(r, layout) \ {NextOf(r, layout)},
                            !.acknowledged = @ + acknowledged]
    IN  IF m.todo = {} THEN Judged(r, m) ELSE m

(* The task of the next partition appends its records. *)
Appends(r) ==
    /\ run[r].at = "append"
    /\ \E layout \in Layouts(r) :
         IF Left(r, layout) = {} THEN To(r, Judged(r, run[r])) /\ Unchanged
         ELSE LET request == Produced(r, layout)
              IN  Asked(r, request, TaskReported(r, run[r], layout, Len(request.records)))

(* Spark gives a task's first attempt up, which becomes a straggler, and starts a second one. Its rows may be others, *)
(* because what was shuffled is computed again.                                                                       *)
TaskRunsAgain(r) ==
    /\ run[r].at = "append" /\ budget.again > 0
    /\ budget' = [budget EXCEPT !.again = @ - 1]
    /\ \E layout \in Appendable(r) :
         /\ late' = late \cup {Produced(r, layout)}
         /\ To(r, IF Has("RetryAppendsNothing")
                  THEN TaskReported(r, [run[r] EXCEPT !.again = TRUE], layout, 0)
                  ELSE [run[r] EXCEPT !.again = TRUE, !.layout = << >>])
    /\ UNCHANGED <<kafka, checkpoints, owner, harmed>>

(* The whole stage runs again: its tasks are first attempts of a second attempt of the stage. *)
StageRunsAgain(r) ==
    /\ run[r].at = "append" /\ budget.again > 0
    /\ budget' = [budget EXCEPT !.again = @ - 1]
    /\ \E request \in Requests(r) :
         /\ late' = late \cup {request}
         /\ To(r, [run[r] EXCEPT !.again = TRUE, !.layout = << >>, !.todo = Outputs, !.acknowledged = 0])
    /\ UNCHANGED <<kafka, checkpoints, owner, harmed>>

----------------------------------------------------------------------------
(* Committing *)

AddsLedger(r) ==
    /\ run[r].at = "add ledger"
    /\ Asked(r, The(Requests(r)), [run[r] EXCEPT !.at = "append entry"])

AppendsEntry(r) ==
    /\ run[r].at = "append entry"
    /\ Asked(r, The(Requests(r)), [run[r] EXCEPT !.at = "commit offsets"])

CommitsOffsets(r) ==
    /\ run[r].at = "commit offsets"
    /\ Asked(r, The(Requests(r)), [run[r] EXCEPT !.at = "commit"])

Committed(r, epoch) ==
    [Cleared(run[r]) EXCEPT !.at = "note", !.entry = NewEntry(r), !.epoch = epoch, !.open = FALSE]

Commits(r) ==
    /\ run[r].at = "commit"
    /\ LET answer == EndTxn(kafka, run[r].epoch, TRUE)
       IN  /\ answer.code # "CONCURRENT_TRANSACTIONS"
           /\ kafka' = answer.kafka
           /\ To(r, IF answer.code = "NONE"
                    THEN Committed(r, IF TV = 2 THEN answer.kafka.epoch ELSE run[r].epoch)
                    ELSE IF run[r].unanswered \/ answer.code # "PRODUCER_FENCED" THEN [run[r] EXCEPT !.at = "doubt"]
                    ELSE [run[r] EXCEPT !.at = "ask why"])
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

(* No broker answers the commit for too long. *)
GivesUp(r) ==
    /\ run[r].at = "commit" /\ run[r].unanswered
    /\ Go(r, IF Has("CommitOnly") THEN "doubt" ELSE "abort")
    /\ Unchanged

(* The coordinator shows what the commit left behind; else InitProducerId settles it, and then the ledger decides. *)
Doubts(r) ==
    /\ run[r].at = "doubt"
    /\ ~Prepared(kafka)
    /\ LET m == [run[r] EXCEPT !.owned = Looked(@)]
           committed == kafka.state = "CompleteCommit" /\ kafka.epoch = m.epoch + (IF TV = 2 THEN 1 ELSE 0)
           settle == [Cleared(m) EXCEPT !.at = IF FenceNeeded THEN "fence" ELSE "init", !.doubt = TRUE, !.seen = Now]
       IN  To(r, IF committed THEN [Committed(r, kafka.epoch) EXCEPT !.owned = m.owned]
                 ELSE IF run[r].slow /\ GivenUp(m) THEN [settle EXCEPT !.epoch = AfterAbort(m.epoch)]
                 ELSE IF TV = 1 /\ ~Taken(m.epoch) THEN [settle EXCEPT !.epoch = None]
                 ELSE IF Taken(m.epoch) THEN Ended(m, "fenced")
                 ELSE settle)
    /\ Unchanged

(* A broker says that the epoch is over: did the coordinator give the transaction up, which can only be if it was open *)
(* for so long, or does another driver own it?                                                                        *)
AsksWhy(r) ==
    /\ run[r].at = "ask why"
    /\ LET m == [Cleared(run[r]) EXCEPT !.owned = Looked(@)]
       IN  To(r, IF m.slow /\ GivenUp(m)
                 THEN [m EXCEPT !.at = IF FenceNeeded THEN "fence" ELSE "init", !.epoch = AfterAbort(@), !.seen = Now]
                 ELSE IF Taken(m.epoch) THEN Ended(m, "fenced")
                 ELSE [m EXCEPT !.at = "abort"])
    /\ Unchanged

(* EndTxn(abort), then a new epoch: a fenced process learns only that it is fenced. *)
Aborts(r) ==
    /\ run[r].at = "abort"
    /\ LET answer == EndTxn(kafka, run[r].epoch, FALSE)
           m == Cleared(run[r])
       IN  IF FenceNeeded THEN To(r, [m EXCEPT !.at = "ask if held"]) /\ UNCHANGED kafka
           ELSE /\ answer.code # "CONCURRENT_TRANSACTIONS"
                /\ kafka' = answer.kafka
                /\ To(r, IF answer.code = "PRODUCER_FENCED" THEN [m EXCEPT !.at = "ask why"]
                         ELSE LET epoch == IF answer.code = "NONE" /\ TV = 2 THEN answer.kafka.epoch ELSE m.epoch
                                  over == [m EXCEPT !.epoch = epoch, !.open = FALSE]
                              IN  IF Has("NewEpoch") THEN [over EXCEPT !.at = "ask if held"] ELSE Appending(over))
    /\ UNCHANGED <<late, checkpoints, budget, owner, harmed>>

----------------------------------------------------------------------------
(* The network and the brokers *)

(* A request has no answer. Its sender sends it again, unless it dies. *)
Unanswered(r) ==
    /\ budget.late > 0
    /\ budget' = [budget EXCEPT !.late = @ - 1]
    /\ \E request \in Requests(r) :
         /\ request \notin late
         /\ late' = late \cup {request}
         /\ To(r, LET m == [run[r] EXCEPT !.unanswered = request.api \in {"InitProducerId", "EndTxn(commit)"},
                                           !.open = @ /\ request.api \notin {"EndTxn(commit)", "EndTxn(abort)"}]
                  IN  IF request.api = "InitProducerId" THEN [m EXCEPT !.owned = LookUsed(@)]
                      ELSE IF request.api = "Produce" /\ request.entry = NoEntry
                      THEN [m EXCEPT !.layout = The({each \in Appendable(r) : Produced(r, each) = request})]
                      ELSE m)
    /\ UNCHANGED <<kafka, checkpoints, owner, harmed>>

Arrives(request) ==
    /\ late' = late \ {request}
    /\ LET answer == Answered(request)
           takes == request.api = "InitProducerId"
       IN  /\ kafka' = answer.kafka
           /\ harmed' = (harmed \/ (takes /\ kafka' # kafka /\ Disturbs(request.run, request.owned)))
           /\ IF takes /\ answer.code = "NONE" /\ kafka'.epoch # kafka.epoch
              THEN /\ owner' = None
                   /\ OthersOvertaken(None, Off)
              ELSE UNCHANGED <<owner, run>>
    /\ UNCHANGED <<checkpoints, budget>>

SomethingArrives == \E request \in late : Arrives(request)

(* Markers of the output partitions are written in their order, which nothing depends on. *)
MarkerIsWritten(p) ==
    /\ Prepared(kafka) /\ p \in kafka.parts
    /\ \A q \in Outputs \cap kafka.parts : p <= q
    /\ kafka' = WriteMarker(kafka, p)
    /\ UNCHANGED <<late, checkpoints, run, budget, owner, harmed>>

(* The coordinator aborts a transaction that has been open for too long. Its owner knows how long it took. *)
TimesOut ==
    /\ kafka.state = "Ongoing" /\ budget.timeout > 0
    /\ budget' = [budget EXCEPT !.timeout = @ - 1]
    /\ kafka' = TimedOut(kafka)
    /\ run' = [r \in DOMAIN run |-> [run[r] EXCEPT !.slow = @ \/ run[r].epoch = kafka.epoch]]
    /\ UNCHANGED <<late, checkpoints, owner, harmed>>

(* A run pauses for so long, and the coordinator has not noticed yet; in TV1 also one whose transaction is not open    *)
(* there, because its first request did not arrive.                                                                   *)
Pauses(r) ==
    /\ run[r].epoch # None /\ ~run[r].slow /\ budget.timeout > 0
    /\ \/ run[r].epoch = kafka.epoch /\ kafka.state = "Ongoing"
       \/ TV = 1 /\ run[r].at \in Attempting
    /\ budget' = [budget EXCEPT !.timeout = @ - 1]
    /\ To(r, [run[r] EXCEPT !.slow = TRUE])
    /\ UNCHANGED <<kafka, late, checkpoints, owner, harmed>>

----------------------------------------------------------------------------

Init ==
    /\ kafka = Unused
    /\ late = {}
    /\ checkpoints = <<[query |-> 1, start |-> 0, plan |-> << >>, done |-> 0]>>
    /\ run = [r \in 1..Runs |-> Off]
    /\ budget = [late |-> Late, again |-> Again, timeout |-> Timeouts, lost |-> Lost, old |-> Old]
    /\ owner = None
    /\ harmed = FALSE

(* What a run does by itself. *)
Step(r) ==
    \/ Describes(r) \/ Glances(r) \/ AsksIfHeld(r) \/ Fences(r) \/ Takes(r) \/ LooksAgain(r) \/ Reads(r)
    \/ AddsPartitions(r) \/ Appends(r) \/ AddsLedger(r) \/ AppendsEntry(r) \/ CommitsOffsets(r) \/ Commits(r)
    \/ GivesUp(r) \/ Doubts(r) \/ AsksWhy(r) \/ Aborts(r) \/ Notes(r)

Next ==
    \/ \E r \in 1..Runs :
         \/ Starts(r) \/ StartsAnew(r) \/ StartsFromCopy(r)
         \/ Step(r)
         \/ TaskRunsAgain(r) \/ StageRunsAgain(r) \/ Unanswered(r) \/ Pauses(r)
    \/ SomethingArrives
    \/ \E p \in Partitions : MarkerIsWritten(p)
    \/ TimesOut

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What must hold, in every state. A commit counts from the moment when the coordinator has decided it. *)

Written(p) == Fate(kafka, p)
Entries == Fate(kafka, Ledger)
Last == LastOf(Entries)

(* How often a record is in the output. *)
Times(record) == Cardinality(UNION {{<<p, i>> : i \in {i \in 1..Len(Written(p)) : Written(p)[i] = record}} :
                                      p \in Outputs})

(* Each record once, or not at all. *)
ExactlyOnce == \A record \in 1..Records : Times(record) <= 1

(* In every partition, the records are in the source's order. *)
InOrder == \A p \in Outputs : \A i, j \in 1..Len(Written(p)) : i < j => Written(p)[i] < Written(p)[j]

(* The output has exactly what the ledger says; the group has its offsets, and the ledger's pointer. *)
Agree ==
    /\ \A record \in 1..Records : Times(record) > 0 <=> record <= Last.end
    /\ LastOf(Fate(kafka, Group)) = PointerOf(Last)

(* Each entry follows the one before. *)
Consecutive ==
    \A i \in 1..Len(Entries) :
      LET this == Entries[i]
          before == IF i = 1 THEN NoEntry ELSE Entries[i - 1]
      IN  /\ this.serial = i
          /\ this.from = before.end
          /\ this.batch = IF this.query = before.query THEN before.batch + 1 ELSE 1

(* What Spark has recorded as done is committed, with these offsets. *)
DoneIsCommitted ==
    \A c \in 1..Len(checkpoints) : \A n \in 1..checkpoints[c].done :
      \E i \in 1..Len(Entries) :
        /\ Entries[i].query = checkpoints[c].query /\ Entries[i].batch = n
        /\ Entries[i].end = checkpoints[c].plan[n]

(* A run that finished left nothing out. *)
NothingLost == (\E r \in 1..Runs : run[r].at = "finished") => Last.end = Records

(* No two runs go on with the same epoch: the brokers could not tell their records apart. *)
OwnEpoch == \A r, s \in 1..Runs : r # s => run[r].epoch = None \/ run[r].epoch # run[s].epoch

(* A driver that comes back late disturbs nobody who lives. *)
NoHarm == ~harmed

(* A refusal, which needs a person, has a reason: another checkpoint, or another run that went on. *)
RefusedForAReason ==
    \A r \in 1..Runs : run[r].at = "refused" => Len(checkpoints) > 1 \/ (run[r].why = "rewound" /\ Last.run # r)

(* A run that has not ended can go on by itself, or with what the coordinator does by itself: it writes markers, and  *)
(* ends a transaction that is open for too long.                                                                      *)
NoPersonNeeded ==
    \A r \in 1..Runs :
      run[r].at \notin Ends \cup {"off"} => Prepared(kafka) \/ kafka.state = "Ongoing" \/ ENABLED Step(r)

(* No transaction is open that nobody ends: the last stable offset goes on. Without verification, nothing keeps out a  *)
(* late TxnOffsetCommit; the next batch ends it.                                                                      *)
NothingHangs ==
    \A p \in IF TV = 1 /\ ~Verification THEN Partitions \ {Group} ELSE Partitions : kafka.log[p].open => kafka.state = "Ongoing" \/ (Prepared(kafka) /\ p \in kafka.parts)
=============================================================================
