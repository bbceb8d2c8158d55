------------------------------- MODULE RealTime -------------------------------
(***************************************************************************)
(* Continuous tasks: a query without micro-batches, from Kafka to Kafka.   *)
(* Each task has a bucket of the source's partitions and commits outputs   *)
(* and offsets in transactions of its own, under the bucket's              *)
(* transactional id, for as long as it lives.                              *)
(*                                                                         *)
(* The query has the transactional id X, as with micro-batches.  A driver  *)
(* starts its tasks in five steps:                                         *)
(*   1. It takes X by InitProducerId, or asks whether it still holds it.   *)
(*   2. InitProducerId of each bucket: as many as the ledger says, and as  *)
(*      many as it will have itself.                                       *)
(*   3. It reads the group's offsets of all partitions (require_stable).   *)
(*      A partition without one is begun, unless the ledger has an entry.  *)
(*   4. It commits the number of its buckets and these offsets in one      *)
(*      transaction of X.                                                  *)
(*   5. It starts the tasks with the epochs of 2 and the offsets of 3.     *)
(* It starts some of its buckets again the same way, if it still holds X.  *)
(* Once its tasks have ended all buckets, others may go on in the same     *)
(* epochs after step 4 alone: in the next long micro-batch.                *)
(* A task never sends InitProducerId, and ends when a request fails.  A    *)
(* driver of micro-batches does 1 to 3, and then writes under X.           *)
(*                                                                         *)
(* Whoever dies is one that takes no more steps.  Whoever pauses takes the *)
(* next one much later.  Nobody sends a request twice (`SentOnce`), except *)
(* InitProducerId: so a request that arrives late is a sender that paused  *)
(* before it, and an answer that is lost is a sender that takes no more    *)
(* steps.  InitProducerId of anybody may arrive once more (`Strays`).      *)
(*                                                                         *)
(* Brokers.tla has one transactional id: here is one of these states for   *)
(* each bucket, and the last one is that of X.  A partition's content is   *)
(* what all have in it.  In the group's, offsets with a higher place in    *)
(* the log count, whenever their markers are written: `at` is this place.  *)
(*                                                                         *)
(* Records are <<partition, number>>, and a transaction has one.           *)
(***************************************************************************)
EXTENDS Brokers, TLC

CONSTANTS
    Sources,   \* partitions of the source
    Records,   \* of each
    Drivers,   \* how many there may be
    First,     \* numbers of buckets that the first driver may have; 0 is a driver of micro-batches
    Later,     \* those that the later ones may have
    Copies,    \* how often a task may commit where it is without an output, as it does for the group's copy
    Begins,    \* where a partition without committed offset may be begun; which one is chosen each time
    Applied,   \* The group has the offsets when their marker is written; if not, at some time later (Kafka 3)
    Guards,    \* the rules that are followed
    \* How often each of these may happen in a behaviour:
    Restarts,  \* A driver starts its tasks again
    Batches,   \* A driver's next batch begins where its tasks have ended
    Timeouts,  \* A transaction is open for longer than its timeout
    Strays,    \* An InitProducerId arrives late, once more
    Forgets,   \* The group forgets a partition's offset: after offsets.retention.minutes, or somebody deletes it
    Late       \* A request of a task arrives late, after it was sent again (without SentOnce)

AllGuards == {
    "ReadAsOwner",    \* The ledger's number of buckets is read after X was taken.
    "HeldIsAsked",    \* Tasks are started again only if the coordinator shows that X's epoch is still the current one.
    "FenceOld",       \* The buckets of the ledger's number are fenced, not only those of the own.
    "MicroFences",    \* So they are by a driver of micro-batches.
    "FenceFirst",     \* Offsets are read after all buckets are fenced.
    "Stable",         \* Offsets are read with require_stable.
    "KnownBegin",     \* Once an entry is in the ledger, a partition without offset is not begun: the driver ends.
    "Commit",         \* The number of buckets and the offsets are committed,
    "CommitFirst",    \* before the tasks start.
    "OnlyCommitted",  \* If that failed, they do not start.
    "TasksEnd",       \* A task that is fenced ends.
    "SentOnce",       \* A task ends if a request has no answer: it sends none again.
    "Ended" }         \* Others go on in its epoch only when it has ended.

ASSUME Guards \subseteq AllGuards

Has(guard) == guard \in Guards

VARIABLES
    kafka,     \* of each transactional id: see Brokers
    length,    \* of the group's log
    forgotten, \* of each partition of the source: up to which place the group has forgotten its offsets
    behind,    \* places in it whose marker is written, and which the group does not have yet
    driver,    \* each driver's memory, in the order of their starts
    tasks,     \* the memory of all that live
    late,      \* that of those which sent a request again, when they did
    budget,    \* what may still happen
    harmed     \* whether a late driver disturbed a live one

vars == <<kafka, length, forgotten, behind, driver, tasks, late, budget, harmed>>

Highest(numbers) == CHOOSE n \in numbers : \A m \in numbers : m <= n

Buckets == 1..Highest(First \cup Later)
X == Highest(First \cup Later) + 1
Ids == 1..X
BucketOf(p, n) == ((p - 1) % n) + 1

Elements(sequence) == {sequence[i] : i \in 1..Len(sequence)}

Nothing == [p \in Sources |-> None]

----------------------------------------------------------------------------
(* Requests and what they read *)

(* One record batch.  Its sequence numbers follow those before, as nobody sends it twice. *)
ProduceNext(k, epoch, p, records) ==
    LET let == LetIn(k, epoch, p)
        log == let.kafka.log[p]
    IN  IF let.code # "NONE" THEN let
        ELSE IF epoch < log.epoch THEN Answer("PRODUCER_FENCED", let.kafka)
        ELSE Answer("NONE", [let.kafka EXCEPT !.log[p] =
                                [Seen(log, epoch, 0) EXCEPT !.open = TRUE, !.pending = @ \o records]])

(* A commit of offsets: the partitions' offsets before and after, None for those that are not in it. *)
Moved(from, to) == [at |-> length + 1, from |-> from, to |-> to]

MovedByOne(m) ==
    Moved([Nothing EXCEPT ![m.part] = m.offsets[m.part]], [Nothing EXCEPT ![m.part] = m.offsets[m.part] + 1])

Latest(entries, p) ==
    LET those == {entry \in entries : entry.to[p] # None}
    IN  IF those = {} THEN None ELSE (CHOOSE entry \in those : \A other \in those : other.at <= entry.at).to[p]

(* The group's offset of a partition. *)
GroupHas(p) ==
    Latest({entry \in UNION {Elements(kafka[i].log[Group].visible) : i \in Ids} :
              entry.at \notin behind /\ entry.at > forgotten[p]}, p)

(* What require_stable waits for. *)
Stable == behind = {} /\ \A i \in Ids : kafka[i].log[Group].pending = << >>

Entries == kafka[X].log[Ledger].visible
LedgersNumber == IF Entries = << >> THEN 0 ELSE Entries[Len(Entries)]

----------------------------------------------------------------------------
(* Drivers *)

(* Of a driver that has taken X as the `turn`-th one. *)
Owner(n, epoch, turn) ==
    [n |-> n, at |-> "read ledger", turn |-> turn,
     epoch |-> epoch,              \* of X
     asked |-> turn,               \* how many had taken X when it last knew that it holds X
     fenced |-> FALSE,             \* whether it has fenced the buckets since it took X
     known |-> FALSE,              \* whether the ledger has an entry
     whole |-> TRUE,               \* whether each bucket has had one task
     todo |-> {},                  \* buckets to fence
     identity |-> [i \in Buckets |-> None],
     offsets |-> Nothing,
     part |-> 0]                   \* micro-batches: the partition of the one that it writes

Of(d) == driver[d]
At(d, at) == d <= Len(driver) /\ driver[d].at = at
To(d, memory) == driver' = [driver EXCEPT ![d] = memory]
Go(d, at) == To(d, [Of(d) EXCEPT !.at = at])

Idle(m, at) ==
    [m EXCEPT !.at = at, !.todo = {}, !.identity = [i \in Buckets |-> None], !.offsets = Nothing, !.part = 0]
Ends(d) == To(d, [Idle(Of(d), "ended") EXCEPT !.epoch = None, !.known = FALSE])

Taken == Cardinality({d \in 1..Len(driver) : Of(d).turn > 0})

Micro(m) == m.n = 0
Writes == IF TV = 1 THEN "add partitions" ELSE "append"
Describes(m) == IF Micro(m) THEN Writes ELSE IF TV = 1 THEN "add ledger" ELSE "append entry"

(* The next step of `m` after the buckets are fenced, after the offsets are read, and after both. *)
AfterBoth(m) == IF Micro(m) \/ (Has("Commit") /\ Has("CommitFirst")) THEN Describes(m) ELSE "start"
AfterFence(m) == IF Has("FenceFirst") THEN "read offsets" ELSE AfterBoth(m)
AfterOffsets(m) == IF Has("FenceFirst") THEN AfterBoth(m) ELSE "fence"

(* Before the buckets are fenced; `old` is the ledger's number. *)
Fencing(m, old) ==
    LET todo == {i : i \in 1..(IF Micro(m) THEN IF Has("MicroFences") THEN old ELSE 0
                    ELSE IF Has("FenceOld") THEN Highest({old, m.n}) ELSE m.n)}
        next == [m EXCEPT !.todo = todo]
    IN  IF ~Has("FenceFirst") THEN [next EXCEPT !.at = "read offsets"]
        ELSE IF todo = {} THEN [next EXCEPT !.at = AfterFence(m), !.fenced = TRUE] ELSE [next EXCEPT !.at = "fence"]

Keeps == UNCHANGED <<length, forgotten, behind, tasks, late, budget, harmed>>

Numbers == IF driver = << >> THEN First ELSE Later

(* Without ReadAsOwner, a driver reads the ledger first. *)
Looks == \E n \in Numbers :
    /\ ~Has("ReadAsOwner") /\ Len(driver) < Drivers
    /\ driver' = Append(driver, [Owner(n, None, 0) EXCEPT !.at = "take", !.part = LedgersNumber])
    /\ UNCHANGED kafka /\ Keeps

TakesAfterLook(d) ==
    LET answer == InitProducerId(kafka[X], None)
    IN  /\ At(d, "take")
        /\ kafka' = [kafka EXCEPT ![X] = answer.kafka]
        /\ IF answer.code = "NONE"
           THEN To(d, Fencing(Owner(Of(d).n, answer.kafka.epoch, Taken + 1), Of(d).part))
           ELSE UNCHANGED driver
        /\ Keeps

(* A driver starts and takes X.  One that must wait, and then dies, leaves only what it did to X. *)
Takes == \E n \in Numbers :
    LET answer == InitProducerId(kafka[X], None)
    IN  /\ Has("ReadAsOwner") /\ Len(driver) < Drivers
        /\ kafka' = [kafka EXCEPT ![X] = answer.kafka]
        /\ driver' = IF answer.code = "NONE" THEN Append(driver, Owner(n, answer.kafka.epoch, Taken + 1)) ELSE driver
        /\ Keeps

ReadsLedger(d) ==
    /\ At(d, "read ledger")
    /\ To(d, Fencing([Of(d) EXCEPT !.known = Entries # << >>], LedgersNumber))
    /\ UNCHANGED kafka /\ Keeps

(* A live task loses its epoch.  That is no harm if its driver took X after `d` last knew that it holds X. *)
Harms(d, i) ==
    \E t \in tasks : /\ t.bucket = i /\ t.epoch = kafka[i].epoch
                     /\ Of(t.driver).turn > Of(d).turn /\ Of(t.driver).turn <= Of(d).asked

Fences(d, i) ==
    LET answer == InitProducerId(kafka[i], None)
        m == [Of(d) EXCEPT !.todo = @ \ {i}, !.identity[i] = answer.kafka.epoch]
    IN  /\ At(d, "fence") /\ i \in Of(d).todo
        /\ kafka' = [kafka EXCEPT ![i] = answer.kafka]
        /\ harmed' = (harmed \/ (answer.kafka # kafka[i] /\ Harms(d, i)))
        /\ IF answer.code # "NONE" THEN UNCHANGED driver
           ELSE To(d, IF m.todo = {} THEN [m EXCEPT !.at = AfterFence(m), !.fenced = TRUE] ELSE m)
        /\ UNCHANGED <<length, forgotten, behind, tasks, late, budget>>

(* Whose offsets `m` reads: those of the buckets that it starts. *)
Reads(m) ==
    IF Micro(m) THEN Sources
    ELSE {p \in Sources : LET i == BucketOf(p, m.n) IN i \in m.todo \/ m.identity[i] # None}

ReadsOffsets(d) ==
    /\ At(d, "read offsets") /\ (Has("Stable") => Stable)
    /\ IF Has("KnownBegin") /\ Of(d).known /\ \E p \in Reads(Of(d)) : GroupHas(p) = None THEN Ends(d)
       ELSE \E begin \in [Sources -> Begins] :
              LET offsets == [p \in Sources |-> IF p \notin Reads(Of(d)) THEN None
                                                ELSE IF GroupHas(p) = None THEN begin[p] ELSE GroupHas(p)]
                  m == [Of(d) EXCEPT !.offsets = offsets]
              IN  To(d, IF ~Has("FenceFirst") /\ m.todo = {} THEN [m EXCEPT !.at = AfterBoth(m), !.fenced = TRUE]
                        ELSE [m EXCEPT !.at = AfterOffsets(m)])
    /\ UNCHANGED kafka /\ Keeps

(* A request of X is answered: `next` if it was accepted. Who must wait asks again. *)
Answered(d, answer, next) ==
    /\ kafka' = [kafka EXCEPT ![X] = answer.kafka]
    /\ CASE answer.code = "NONE" -> To(d, next)
         [] answer.code = "CONCURRENT_TRANSACTIONS" -> UNCHANGED driver
         [] answer.code \notin {"NONE", "CONCURRENT_TRANSACTIONS"} ->
              IF Has("OnlyCommitted") \/ Micro(Of(d)) THEN Ends(d) ELSE Go(d, "start")

AddsPartitions(d) ==
    /\ At(d, "add partitions") \/ At(d, "add ledger")
    /\ Answered(d, AddPartitions(kafka[X], Of(d).epoch,
                                 {Ledger, Group} \cup (IF Micro(Of(d)) THEN Outputs ELSE {})),
                [Of(d) EXCEPT !.at = IF Micro(Of(d)) THEN "append" ELSE "append entry"])
    /\ Keeps

(* Micro-batches: the next record of a partition. *)
Appends(d, p, out) ==
    /\ At(d, "append") /\ Of(d).offsets[p] < Records
    /\ Answered(d, ProduceNext(kafka[X], Of(d).epoch, out, << <<p, Of(d).offsets[p] + 1>> >>),
                [Of(d) EXCEPT !.at = "append entry", !.part = p])
    /\ Keeps

AppendsEntry(d) ==
    /\ At(d, "append entry")
    /\ Answered(d, ProduceNext(kafka[X], Of(d).epoch, Ledger, <<Of(d).n>>), [Of(d) EXCEPT !.at = "commit offsets"])
    /\ Keeps

(* The offsets of step 4, or those of a micro-batch. *)
Described(m) == IF Micro(m) THEN MovedByOne(m) ELSE Moved(m.offsets, m.offsets)

CommitsOffsets(d) ==
    LET answer == CommitOffsets(kafka[X], Of(d).epoch, Described(Of(d)))
    IN  /\ At(d, "commit offsets")
        /\ Answered(d, answer, [Of(d) EXCEPT !.at = "commit"])
        /\ length' = IF answer.code = "NONE" THEN length + 1 ELSE length
        /\ UNCHANGED <<forgotten, behind, tasks, late, budget, harmed>>

Commits(d) ==
    LET answer == EndTxn(kafka[X], Of(d).epoch, TRUE)
        m == [Of(d) EXCEPT !.epoch = answer.kafka.epoch, !.known = TRUE]
    IN  /\ At(d, "commit")
        /\ Answered(d, answer,
             IF Micro(m) THEN [m EXCEPT !.at = Writes, !.offsets[m.part] = @ + 1, !.part = 0]
             ELSE IF Has("CommitFirst") THEN [m EXCEPT !.at = "start"] ELSE Idle(m, "running"))
        /\ Keeps

Task(d, m, i) ==
    [driver |-> d, bucket |-> i, epoch |-> m.identity[i], at |-> Writes, part |-> 0,
     offsets |-> [p \in Sources |-> IF BucketOf(p, m.n) = i THEN m.offsets[p] ELSE None], copies |-> Copies]

Starts(d) ==
    LET m == Of(d)
    IN  /\ At(d, "start")
        /\ tasks' = tasks \cup {Task(d, m, i) : i \in {i \in 1..m.n : m.identity[i] # None}}
        /\ To(d, IF Has("Commit") /\ ~Has("CommitFirst") THEN [m EXCEPT !.at = Describes(m)] ELSE Idle(m, "running"))
        /\ UNCHANGED <<kafka, length, forgotten, behind, late, budget, harmed>>

(* Some of the buckets, at any time: because a task ended, or nothing was heard of it. *)
StartsAgain(d) ==
    LET m == [Of(d) EXCEPT !.asked = Taken]
    IN  /\ At(d, "running") /\ budget.restarts > 0
        /\ IF Has("HeldIsAsked") /\ kafka[X].epoch # m.epoch THEN Ends(d)
           ELSE \E some \in SUBSET (1..m.n) \ {{}} : To(d, [Fencing(m, m.n) EXCEPT !.todo = some, !.whole = FALSE])
        /\ budget' = [budget EXCEPT !.restarts = @ - 1]
        /\ UNCHANGED <<kafka, length, forgotten, behind, tasks, late, harmed>>

(* The next batch: no bucket is taken, no offset read. With Ended, no task is left that it could go on beside. *)
GoesOn(d) ==
    LET m == Of(d)
        TaskOf(i) == CHOOSE t \in tasks : t.driver = d /\ t.bucket = i
    IN  /\ At(d, "running") /\ m.whole /\ budget.batches > 0
        /\ \A i \in 1..m.n : \E t \in tasks : t.driver = d /\ t.bucket = i /\ t.at = Writes
        /\ tasks' = IF Has("Ended") THEN {t \in tasks : t.driver # d} ELSE tasks
        /\ To(d, [m EXCEPT !.at = Describes(m),
                          !.identity = [i \in Buckets |-> IF i <= m.n THEN TaskOf(i).epoch ELSE None],
                          !.offsets = [p \in Sources |-> TaskOf(BucketOf(p, m.n)).offsets[p]]])
        /\ budget' = [budget EXCEPT !.batches = @ - 1]
        /\ UNCHANGED <<kafka, length, forgotten, behind, late, harmed>>

----------------------------------------------------------------------------
(* Tasks *)

(* A request of `t` is answered: `next` if it was accepted. *)
TaskAnswered(t, answer, next) ==
    /\ kafka' = [kafka EXCEPT ![t.bucket] = answer.kafka]
    /\ tasks' = CASE answer.code = "NONE" -> (tasks \ {t}) \cup {next}
                  [] answer.code = "CONCURRENT_TRANSACTIONS" -> tasks
                  [] answer.code \notin {"NONE", "CONCURRENT_TRANSACTIONS"} ->
                       IF Has("TasksEnd") THEN tasks \ {t}
                       ELSE (tasks \ {t}) \cup {[t EXCEPT !.at = "init", !.part = 0]}
    /\ UNCHANGED <<forgotten, behind, driver, late, budget, harmed>>

TaskAddsPartitions == \E t \in tasks :
    /\ t.at = "add partitions" /\ \E p \in Sources : t.offsets[p] \in 0..(Records - 1)
    /\ TaskAnswered(t, AddPartitions(kafka[t.bucket], t.epoch, Outputs \cup {Group}), [t EXCEPT !.at = "append"])
    /\ UNCHANGED length

TaskAppends == \E t \in tasks, p \in Sources, out \in Outputs :
    /\ t.at = "append" /\ t.offsets[p] \in 0..(Records - 1)
    /\ TaskAnswered(t, ProduceNext(kafka[t.bucket], t.epoch, out, << <<p, t.offsets[p] + 1>> >>),
                    [t EXCEPT !.at = "commit offsets", !.part = p])
    /\ UNCHANGED length

(* A transaction without an output. In the code its offsets are only those of the group, and nobody goes on by them. *)
TaskCopies == \E t \in tasks :
    LET k == kafka[t.bucket]
    IN  /\ t.at = Writes /\ t.copies > 0
        /\ TaskAnswered(t, IF TV = 1 THEN AddPartitions(k, t.epoch, {Group}) ELSE Answer("NONE", k),
                        [t EXCEPT !.at = "commit offsets", !.copies = @ - 1])
        /\ UNCHANGED length

(* Of an output, or of none. *)
Offsets(t) == IF t.part = 0 THEN Moved(t.offsets, t.offsets) ELSE MovedByOne(t)

TaskCommitsOffsets == \E t \in tasks :
    LET answer == CommitOffsets(kafka[t.bucket], t.epoch, Offsets(t))
    IN  /\ t.at = "commit offsets"
        /\ TaskAnswered(t, answer, [t EXCEPT !.at = "commit"])
        /\ length' = IF answer.code = "NONE" THEN length + 1 ELSE length

TaskCommits == \E t \in tasks :
    LET answer == EndTxn(kafka[t.bucket], t.epoch, TRUE)
    IN  /\ t.at = "commit"
        /\ TaskAnswered(t, answer,
             [t EXCEPT !.at = Writes, !.epoch = answer.kafka.epoch, !.part = 0,
                       !.offsets = IF t.part = 0 THEN @ ELSE [@ EXCEPT ![t.part] = @ + 1]])
        /\ UNCHANGED length

(* Without SentOnce: a request that was not answered is sent again, and arrives late, too. *)
TaskSendsAgain == \E t \in tasks :
    /\ ~Has("SentOnce") /\ budget.late > 0 /\ t.at \in {"commit offsets", "commit"}
    /\ late' = late \cup {t}
    /\ budget' = [budget EXCEPT !.late = @ - 1]
    /\ UNCHANGED <<kafka, length, forgotten, behind, driver, tasks, harmed>>

LateArrives == \E t \in late :
    LET k == kafka[t.bucket]
        answer == IF t.at = "commit" THEN EndTxn(k, t.epoch, TRUE) ELSE CommitOffsets(k, t.epoch, Offsets(t))
    IN  /\ kafka' = [kafka EXCEPT ![t.bucket] = answer.kafka]
        /\ length' = IF t.at = "commit offsets" /\ answer.code = "NONE" THEN length + 1 ELSE length
        /\ late' = late \ {t}
        /\ UNCHANGED <<forgotten, behind, driver, tasks, budget, harmed>>

(* Without TasksEnd. *)
TaskInitialises == \E t \in tasks :
    LET answer == InitProducerId(kafka[t.bucket], None)
    IN  /\ t.at = "init"
        /\ TaskAnswered(t, answer, [t EXCEPT !.at = Writes, !.epoch = answer.kafka.epoch])
        /\ UNCHANGED length

----------------------------------------------------------------------------
(* Brokers *)

MarkerIsWritten(i, p) ==
    LET k == kafka[i]
    IN  /\ Prepared(k) /\ p \in k.parts
        /\ kafka' = [kafka EXCEPT ![i] = WriteMarker(k, p)]
        /\ behind' = IF p = Group /\ ~Applied
                     THEN behind \cup {entry.at : entry \in Elements(Fate(k, p)) \ Elements(k.log[p].visible)}
                     ELSE behind
        /\ UNCHANGED <<length, forgotten, driver, tasks, late, budget, harmed>>

GroupApplies ==
    /\ \E at \in behind : behind' = behind \ {at}
    /\ UNCHANGED <<kafka, length, forgotten, driver, tasks, late, budget, harmed>>

GroupForgets(p) ==
    /\ budget.forgets > 0 /\ Stable /\ GroupHas(p) # None
    /\ forgotten' = [forgotten EXCEPT ![p] = length]
    /\ budget' = [budget EXCEPT !.forgets = @ - 1]
    /\ UNCHANGED <<kafka, length, behind, driver, tasks, late, harmed>>

TimesOut(i) ==
    /\ budget.timeouts > 0 /\ kafka[i].state = "Ongoing"
    /\ kafka' = [kafka EXCEPT ![i] = TimedOut(@)]
    /\ budget' = [budget EXCEPT !.timeouts = @ - 1]
    /\ UNCHANGED <<length, forgotten, behind, driver, tasks, late, harmed>>

StrayArrives(i) ==
    /\ budget.strays > 0 /\ kafka[i].epoch # None /\ ~Prepared(kafka[i])
    /\ kafka' = [kafka EXCEPT ![i] = InitProducerId(@, None).kafka]
    /\ budget' = [budget EXCEPT !.strays = @ - 1]
    /\ UNCHANGED <<length, forgotten, behind, driver, tasks, late, harmed>>

----------------------------------------------------------------------------

Init ==
    /\ kafka = [i \in Ids |-> Unused]
    /\ length = 0
    /\ forgotten = [p \in Sources |-> 0]
    /\ behind = {}
    /\ driver = << >>
    /\ tasks = {}
    /\ late = {}
    /\ budget = [restarts |-> Restarts, batches |-> Batches, timeouts |-> Timeouts, strays |-> Strays, late |-> Late,
                  forgets |-> Forgets]
    /\ harmed = FALSE

Next ==
    \/ Looks \/ Takes
    \/ \E d \in 1..Drivers :
         \/ TakesAfterLook(d) \/ ReadsLedger(d) \/ ReadsOffsets(d) \/ AddsPartitions(d) \/ AppendsEntry(d)
         \/ CommitsOffsets(d) \/ Commits(d) \/ Starts(d) \/ StartsAgain(d) \/ GoesOn(d)
         \/ \E i \in Buckets : Fences(d, i)
         \/ \E p \in Sources, out \in Outputs : Appends(d, p, out)
    \/ TaskAddsPartitions \/ TaskAppends \/ TaskCopies \/ TaskCommitsOffsets \/ TaskCommits \/ TaskInitialises \/ TaskSendsAgain
    \/ LateArrives \/ GroupApplies \/ \E p \in Sources : GroupForgets(p)
    \/ \E i \in Ids : TimesOut(i) \/ StrayArrives(i) \/ \E p \in Partitions : MarkerIsWritten(i, p)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* What must hold, in every state. A commit counts from the moment when the coordinator has decided it. *)

(* How often a record is in the output. *)
Times(record) ==
    Cardinality({place \in Ids \X Outputs \X (1..(Records * Cardinality(Sources) + 1)) :
                   LET fate == Fate(kafka[place[1]], place[2])
                   IN  place[3] <= Len(fate) /\ fate[place[3]] = record})

Committed == UNION {Elements(Fate(kafka[i], Group)) : i \in Ids}
Offset(p) == Latest(Committed, p)

(* Where a partition was begun. *)
Begun(p) ==
    LET those == {entry \in Committed : entry.to[p] # None}
    IN  (CHOOSE entry \in those : \A other \in those : entry.at <= other.at).from[p]

AtMostOnce == \A p \in Sources, n \in 1..Records : Times(<<p, n>>) <= 1

(* The offsets are never ahead of the output, nor behind it. *)
NothingSkipped ==
    \A p \in Sources : Offset(p) # None => \A n \in (Begun(p) + 1)..Offset(p) : Times(<<p, n>>) >= 1
NothingBehind == \A p \in Sources : \A n \in (Offset(p) + 1)..Records : Times(<<p, n>>) = 0

(* In the order of the group's log. *)
NeverBack ==
    \A one, other \in Committed : \A p \in Sources :
      one.at < other.at /\ one.to[p] # None /\ other.to[p] # None => one.to[p] <= other.to[p]

(* No two transactions start from the same offset. *)
OneWriter ==
    \A one, other \in Committed : \A p \in Sources :
      one.at # other.at /\ one.from[p] # None /\ one.from[p] = other.from[p]
        => one.to[p] = one.from[p] \/ other.to[p] = other.from[p]

(* Once a driver has fenced the buckets, no task of an earlier owner of X can append, of whatever bucket. *)
OnlyTheLast ==
    \A t \in tasks : \A d \in 1..Len(driver) :
      Of(d).fenced /\ Of(d).turn > Of(t.driver).turn => t.epoch < kafka[t.bucket].epoch

(* A late driver interrupts a live one's tasks only if that one took X since the late one last knew that it holds X. *)
LittleHarm == ~harmed

NothingIsOpen ==
    \A i \in Ids : \A p \in IF TV = 1 /\ ~Verification THEN Partitions \ {Group} ELSE Partitions :
      kafka[i].log[p].open => kafka[i].state = "Ongoing" \/ (Prepared(kafka[i]) /\ p \in kafka[i].parts)

----------------------------------------------------------------------------
(* What must be possible: TLC has to find that these do not hold. *)

(* A driver that starts tasks has found something committed, and something left; and now all is committed. *)
NeverAllAfterTakeover ==
    ~ /\ \A p \in Sources : Offset(p) = Records
      /\ \E start \in Committed :
           /\ start.from = start.to
           /\ \E p \in Sources : start.to[p] > Begun(p)
           /\ \E p \in Sources : start.to[p] < Records
=============================================================================
