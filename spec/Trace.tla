-------------------------------- MODULE Trace --------------------------------
(***************************************************************************)
(* Whether recorded histories of the code are behaviours of the            *)
(* specification.  Each recorded step is one of SharedTransaction, with    *)
(* what it sent and what the brokers answered.  A step that nobody can see *)
(* from outside may come before it, of the same run only: Silent.          *)
(*                                                                         *)
(* lab/specification/steps.py translates what lab/simulation/record.py     *)
(* recorded, of the simulation or of real runs (lab/real_runs).            *)
(* lab/specification/traces.py writes it into a module Histories whose     *)
(* `Traces` is a sequence of histories, each a sequence of recorded steps. *)
(* What is not as in SharedTransaction:                                    *)
(*  - The tasks of an attempt, and the requests that add entry and         *)
(*    offsets, come in any order.  TV1 adds partitions by any number of    *)
(*    requests; without one, the leader refuses the append. Those of tasks *)
(*    that fail tell the driver nothing.                                   *)
(*  - The offsets of the source are in another partition, `Source`.        *)
(*  - A run may abort before EndTxn(commit), for a reason that is not in   *)
(*    SharedTransaction, such as a leader that does not answer.            *)
(*  - A run may look once more before it appends anything. If somebody has *)
(*    a transaction open by then, it asks whether the id is still its own. *)
(*  - The network may deliver more than one copy of a request.             *)
(*  - Kafka 4 tells everybody to wait while an end is decided, also those  *)
(*    whose epoch is over; without EndFirst, Brokers fences these at once. *)
(*    They send the request again, which is then the one that counts.      *)
(*  - Which batch is planned, and what a copy of a checkpoint lacks, is as *)
(*    recorded: that is Spark's.                                           *)
(***************************************************************************)
EXTENDS SharedTransaction, Histories

CONSTANTS
    Source   \* one of Outputs without records: the partition with the source's offsets

VARIABLES
    trace,  \* which one
    next,   \* its next step
    known   \* facts on the attempts, each an epoch of a run: <<"acknowledged", run, epoch, partition>>,
            \* <<"failed", run, epoch>>, <<"again", run, epoch>>; <<"unanswered", run, epoch>>: InitProducerId

E == Traces[trace][next]  \* the recorded step that comes next
Is(kind) == next <= Len(Traces[trace]) /\ E.kind = kind
Consumes == next' = next + 1 /\ UNCHANGED trace
Sees == UNCHANGED <<trace, next, known>>

Fact(what, r) == <<what, r, run[r].epoch>>
Learn(facts) == known' = known \cup facts

AppendingRows == {"add partitions", "append"}
AddingEntry == {"add ledger", "append entry", "commit offsets"}
Writing(r) == run[r].at \in AppendingRows \cup AddingEntry

Nothing == UNCHANGED vars /\ UNCHANGED known

----------------------------------------------------------------------------
(* Spark *)

Chosen(all, before, c) ==
    Len(all[c].plan) > Len(before[c].plan) => all[c].plan[Len(all[c].plan)] = IF E.end > 0 THEN E.end ELSE Records

Began ==
    /\ Is("starts")
    /\ run[E.run].at = "off"
    /\ LET all == checkpoints \o E.new
       IN  /\ Plans(E.run, [Off EXCEPT !.checkpoint = E.checkpoint, !.batch = NextBatch(all[E.checkpoint])], all)
           /\ Chosen(checkpoints', all, E.checkpoint)
    /\ UNCHANGED <<kafka, late, budget, owner, harmed, known>>

Recorded ==
    /\ Is("notes")
    /\ run[E.run].batch = E.batch
    /\ Notes(E.run)
    /\ Chosen(checkpoints', checkpoints, run[E.run].checkpoint)
    /\ UNCHANGED known

Over == Is("ends") /\ run[E.run].at = E.how /\ Nothing

----------------------------------------------------------------------------
(* Looking *)

Described ==
    /\ Is("describes")
    /\ kafka.state = E.state /\ kafka.epoch = E.epoch
    /\ \/ Nothing  \* to look once more, or until the end of a transaction that is decided
       \/ /\ Describes(E.run) \/ AsksIfHeld(E.run) \/ LooksAgain(E.run) \/ Doubts(E.run) \/ AsksWhy(E.run)
          /\ UNCHANGED known

Read == Is("reads") /\ (Nothing \/ ((Glances(E.run) \/ Reads(E.run)) /\ UNCHANGED known))

----------------------------------------------------------------------------
(* Requests *)

(* The group of the source: its offsets are no records. *)
CommitSource(epoch) ==
    LET let == LetIn(kafka, epoch, Source)
        log == let.kafka.log[Source]
    IN  IF let.code # "NONE" THEN let
        ELSE IF epoch < log.epoch THEN Answer("PRODUCER_FENCED", let.kafka)
        ELSE Answer("NONE", [let.kafka EXCEPT !.log[Source] = [Seen(log, epoch, 0) EXCEPT !.open = TRUE]])

AnswerTo(m) == IF m.api = "TxnOffsetCommit" /\ m.parts = {Source} THEN CommitSource(m.epoch) ELSE Answered(m)

Waits == TV = 2 /\ Prepared(kafka) /\ E.code = "CONCURRENT_TRANSACTIONS"

(* `run` sends `m`. An answer changes its memory to `then`, an error is a fact on its attempt. *)
Sends(r, m, then, acknowledged) ==
    /\ E.epoch = m.epoch
    /\ IF E.code = "unanswered"
       THEN /\ late' = late \cup {m}
            /\ To(r, [run[r] EXCEPT !.layout = then.layout])
            /\ UNCHANGED <<kafka, known>>
       ELSE IF Waits THEN UNCHANGED <<kafka, late, run, known>>
       ELSE LET answer == AnswerTo(m)
            IN  /\ answer.code = E.code
                /\ kafka' = answer.kafka
                /\ To(r, IF answer.code = "NONE" THEN then ELSE run[r])
                /\ Learn(IF answer.code = "NONE" THEN {Fact("acknowledged", r) \o <<p>> : p \in acknowledged}
                         ELSE IF answer.code = "CONCURRENT_TRANSACTIONS" THEN {} ELSE {Fact("failed", r)})
                /\ UNCHANGED late
    /\ UNCHANGED <<checkpoints, budget, owner, harmed>>

Adds(r) ==
    /\ Is("adds")
    /\ \/ run[r].at \in AppendingRows /\ E.parts \subseteq Outputs \ {Source}
       \/ run[r].at \in AddingEntry /\ E.parts \subseteq {Ledger, Group, Source}
    /\ \E open \in {run[r].open, TRUE} :  \* who fails does not tell its driver what it was answered
         Sends(r, [Message(r, "AddPartitionsToTxn") EXCEPT !.parts = E.parts], [run[r] EXCEPT !.open = open], {})

IsLayout(r, layout) ==
    /\ layout[Source] = << >>
    /\ \A p \in Outputs : \A i, j \in 1..Len(layout[p]) : i < j => layout[p][i] < layout[p][j]
    /\ \A record \in (From(r) + 1)..End(r) :
         Cardinality({p \in Outputs : \E i \in 1..Len(layout[p]) : layout[p][i] = record}) = 1
    /\ \A p \in Outputs : \A i \in 1..Len(layout[p]) : layout[p][i] \in (From(r) + 1)..End(r)

(* A task of the first attempt appends what is left for its partition. Once a task or a stage ran again, the attempt  *)
(* cannot be committed, and it does not matter what else is appended.                                                 *)
TaskAppends(r) ==
    /\ Is("appends")
    /\ run[r].at \in AppendingRows
    /\ LET m == [Message(r, "Produce") EXCEPT !.parts = {E.partition}, !.records = E.records]
           before == [run[r] EXCEPT !.at = "append", !.layout = E.layout,
                                    !.todo = {p \in @ \ {E.partition} : E.layout[p] # << >>},
                                    !.acknowledged = @ + Len(E.records)]
       IN  IF run[r].again THEN Sends(r, m, run[r], {})
           ELSE /\ E.partition \in run[r].todo /\ E.layout[E.partition] = E.records
                /\ IF run[r].layout = << >> THEN IsLayout(r, E.layout) ELSE run[r].layout = E.layout
                /\ Sends(r, m, IF before.todo = {} THEN Judged(r, before) ELSE before, {})

RanAgain ==
    /\ Is("runs again")
    /\ LET r == E.run
       IN  IF Writing(r)  \* all rows may be there before every task has reported
           THEN To(r, [run[r] EXCEPT !.at = "append", !.again = TRUE]) /\ Learn({Fact("again", r)})
           ELSE UNCHANGED run /\ UNCHANGED known
    /\ UNCHANGED <<kafka, late, checkpoints, budget, owner, harmed>>

Fits(entry) ==
    /\ entry.query = E.entry.query /\ entry.batch = E.entry.batch /\ entry.from = E.entry.from
    /\ entry.end = E.entry.end /\ entry.serial = E.entry.serial /\ entry.run = E.entry.run
    /\ entry.earlier = E.entry.earlier

EntryAdded(r) ==
    /\ Is("appends entry")
    /\ run[r].at \in AddingEntry
    /\ Fits(NewEntry(r))
    /\ Sends(r, [Message(r, "Produce") EXCEPT !.parts = {Ledger}, !.entry = NewEntry(r)],
             [run[r] EXCEPT !.at = "append entry"], {Ledger})

OffsetsAdded(r) ==
    /\ Is("commits offsets")
    /\ run[r].at \in AddingEntry
    /\ LET m == [Message(r, "TxnOffsetCommit") EXCEPT !.parts = {E.partition}]
       IN  Sends(r, IF E.partition = Source THEN m ELSE [m EXCEPT !.entry = PointerOf(NewEntry(r))],
                 [run[r] EXCEPT !.at = "append entry"], {E.partition})

AllAdded(r) == \A p \in {Ledger, Group, Source} : Fact("acknowledged", r) \o <<p>> \in known

EndsTransaction(r) ==
    /\ Is("ends transaction")
    /\ E.epoch = run[r].epoch
    /\ run[r].at = IF E.commit THEN "commit" ELSE "abort"
    /\ IF E.code = "unanswered"
       THEN /\ late' = late \cup {Message(r, IF E.commit THEN "EndTxn(commit)" ELSE "EndTxn(abort)")}
            /\ To(r, [run[r] EXCEPT !.unanswered = @ \/ E.commit, !.open = FALSE])
            /\ UNCHANGED <<kafka, checkpoints, budget, owner, harmed>>
       ELSE IF Waits THEN UNCHANGED vars
       ELSE LET answer == EndTxn(kafka, run[r].epoch, E.commit)
            IN  /\ answer.code = E.code
                /\ IF E.code = "CONCURRENT_TRANSACTIONS" THEN UNCHANGED vars
                   ELSE IF E.commit THEN Commits(r) ELSE Aborts(r)
    /\ UNCHANGED known

Initialises(r) ==
    /\ Is("initialises")
    /\ E.epoch = run[r].epoch
    /\ run[r].at = "init" /\ ~run[r].unanswered
    /\ IF E.code = "unanswered"
       THEN /\ late' = late \cup {Message(r, "InitProducerId")}
            /\ To(r, [run[r] EXCEPT !.unanswered = TRUE, !.owned = LookUsed(@)])
            /\ Learn({Fact("unanswered", r)})
            /\ UNCHANGED <<kafka, checkpoints, budget, owner, harmed>>
       ELSE LET answer == InitProducerId(kafka, run[r].epoch)
            IN  /\ answer.code = E.code
                /\ E.code = "NONE" => answer.kafka.epoch = E.returned
                /\ IF Prepared(kafka) THEN UNCHANGED vars ELSE Takes(r)
                /\ UNCHANGED known

(* A request arrives after its sender gave it up. *)
ArrivesLate ==
    /\ Is("arrives")
    /\ \E m \in late :
         /\ m.api = E.api /\ m.run = E.run /\ m.epoch = E.epoch /\ m.parts = E.parts /\ m.records = E.records
         /\ AnswerTo(m).code = E.code \/ Waits
         /\ kafka' = IF Waits THEN kafka ELSE AnswerTo(m).kafka
         /\ harmed' = (harmed \/ (m.api = "InitProducerId" /\ kafka' # kafka /\ Disturbs(m.run, m.owned)))
         /\ IF m.api = "InitProducerId" /\ E.code = "NONE" /\ kafka'.epoch # kafka.epoch
            THEN owner' = None /\ OthersOvertaken(None, Off)
            ELSE UNCHANGED <<owner, run>>
    /\ UNCHANGED <<late, checkpoints, budget, known>>

(* A task that was given up goes on: with any rows, because what was shuffled may be computed again. *)
Straggles ==
    /\ Is("straggles")
    /\ <<"again", E.run, E.epoch>> \in known
    /\ LET m == [Message(E.run, E.api) EXCEPT !.epoch = E.epoch, !.parts = E.parts, !.records = E.records]
           answer == AnswerTo(m)
       IN  IF Waits THEN UNCHANGED kafka ELSE answer.code = E.code /\ kafka' = answer.kafka
    /\ UNCHANGED <<late, checkpoints, run, budget, owner, harmed, known>>

----------------------------------------------------------------------------
(* What the brokers do, and time *)

Marks ==
    /\ Is("marker")
    /\ Prepared(kafka) /\ E.partition \in kafka.parts
    /\ kafka' = WriteMarker(kafka, E.partition)
    /\ UNCHANGED <<late, checkpoints, run, budget, owner, harmed, known>>

Expires == Is("times out") /\ TimesOut /\ UNCHANGED known

(* What a reader of committed records finds. *)
Shows == Is("shows") /\ kafka.log[E.partition].visible = E.records /\ Nothing

(* The attempt lasts longer than the timeout: its run may find that when it ends. *)
Lasts == Is("lasts") /\ (Nothing \/ (Pauses(E.run) /\ UNCHANGED known))

----------------------------------------------------------------------------
(* Steps that are not recorded, of the run whose recorded step is next *)

Silent ==
    /\ next <= Len(Traces[trace])
    /\ "run" \in DOMAIN E
    /\ LET r == E.run
           m == run[r]
       IN  \/ (* Only who knows that the transaction lasted so long asks why it is over. *)
              ~m.slow /\ AsksWhy(r)
           \/ Writing(r) /\ (m.slow \/ Fact("failed", r) \in known) /\ Go(r, "ask why") /\ Unchanged
           \/ /\ Writing(r) \/ (m.at = "commit" /\ ~m.unanswered)
              /\ Is("ends transaction")
              /\ To(r, [Cleared(m) EXCEPT !.at = "abort"])
              /\ Unchanged
           \/ m.at = "append entry" /\ AllAdded(r) /\ Go(r, "commit") /\ Unchanged
           \/ /\ Is("describes")
              /\ \/ m.at = "glance" /\ Go(r, "describe") /\ Unchanged
                 \/ (* It looks again before each InitProducerId that follows one without an answer. *)
                    /\ m.at = "init" /\ ~m.unanswered /\ Fact("unanswered", r) \in known
                    /\ To(r, [m EXCEPT !.unanswered = TRUE])
                    /\ Unchanged
                 \/ (* Before it appends anything, it decided once more, on what was committed since. *)
                    /\ m.at \in AppendingRows /\ m.layout = << >> /\ ~m.again
                    /\ To(r, [Cleared(m) EXCEPT !.at = "describe", !.epoch = None])
                    /\ Unchanged
                 \/ (* Before it appends anything, it found the open transaction of who has taken the id since. *)
                    /\ m.at \in AppendingRows \cup {"read"} /\ m.layout = << >> /\ ~m.again /\ Taken(m.epoch)
                    /\ Go(r, "ask if held")
                    /\ Unchanged
                 \/ (* It read that there is nothing to write, and asks whose the id is. *)
                    Reads(r) /\ VerdictOn(r, Entry) # "write"
                 \/ (* The same of an attempt that is not the first one: it looks like one that holds nothing. *)
                    /\ m.at = "read" /\ ~m.starts /\ ~m.doubt /\ VerdictOn(r, Entry) # "write"
                    /\ To(r, [Cleared(m) EXCEPT !.at = "describe", !.epoch = None])
                    /\ Unchanged
           \/ GivesUp(r)
    /\ Sees

Consumed ==
    /\ \/ Began \/ Recorded \/ Over \/ Described \/ Read
       \/ Is("adds") /\ Adds(E.run)
       \/ Is("appends") /\ TaskAppends(E.run)
       \/ Is("appends entry") /\ EntryAdded(E.run)
       \/ Is("commits offsets") /\ OffsetsAdded(E.run)
       \/ Is("ends transaction") /\ EndsTransaction(E.run)
       \/ Is("initialises") /\ Initialises(E.run)
       \/ RanAgain \/ ArrivesLate \/ Straggles \/ Marks \/ Expires \/ Lasts \/ Shows
    /\ Consumes
    (* Tells how far each trace came; a register is for each of them. *)
    /\ next' > TLCGet(trace) => TLCSet(trace, next') /\ PrintT(<<"reached", trace, next'>>)

TraceInit ==
    /\ Init
    /\ trace \in 1..Len(Traces)
    /\ next = 1
    /\ known = {}
    /\ TLCSet(trace, 1)

TraceSpec == TraceInit /\ [][Silent \/ Consumed]_<<vars, trace, next, known>>

(* To show the behaviour that comes farthest. *)
CONSTANT Farthest
NotFarthest == next < Farthest
=============================================================================
