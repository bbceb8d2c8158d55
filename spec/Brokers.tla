------------------------------ MODULE Brokers ------------------------------
(***************************************************************************)
(* What Kafka's brokers do with one transactional.id: its transaction      *)
(* coordinator, the leaders of the partitions in its transactions, and the *)
(* group coordinator, whose log is one more partition.                     *)
(*                                                                         *)
(* Each request is an operator from the brokers' state and the request to  *)
(* [code |-> error code, kafka |-> the state afterwards].  Nothing here    *)
(* knows drivers.  lab/simulation has the same in Python (coordinator.py,  *)
(* partition.py, offsets.py), and tests compare that with real brokers.    *)
(*                                                                         *)
(* The state, a record:                                                    *)
(*   state   of the transaction: "Empty", "Ongoing", "PrepareCommit",      *)
(*           "PrepareAbort", "CompleteCommit", "CompleteAbort"             *)
(*   epoch   the producer epoch, None before the first InitProducerId;     *)
(*           there is one producer id, whose epochs do not run out         *)
(*   last    the epoch before, if a resend with it is answered again       *)
(*   parts   the partitions in the transaction; once its end is decided,   *)
(*           those that lack their marker                                  *)
(*   marker  the epoch of these markers                                    *)
(*   log     of each partition: the highest epoch that its leader saw,     *)
(*           `first`, the size of the record batch with sequence number 0  *)
(*           in that epoch (0: none), whether a transaction is open,       *)
(*           `pending`, what was appended since the last marker, and       *)
(*           `visible`, what a read_committed consumer sees                *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    TV,            \* the protocol: transaction.version 1 or 2 (KIP-890)
    Verification,  \* TV1: leaders ask the coordinator (Kafka 3.6 and later)
    EndFirst,      \* While an end is decided, nobody learns that it is fenced (Kafka 4): see Waiting
    Outputs,       \* the partitions of the output topic
    Ledger,        \* the partition of the ledger topic
    Group          \* the partition of __consumer_offsets with the group

Partitions == Outputs \cup {Ledger, Group}

None == -1

Unused ==
    [state |-> "Empty", epoch |-> None, last |-> None, parts |-> {}, marker |-> None,
     log |-> [p \in Partitions |->
                [epoch |-> None, first |-> 0, open |-> FALSE, pending |-> << >>, visible |-> << >>]]]

Prepared(k) == k.state \in {"PrepareCommit", "PrepareAbort"}
MustWait(k) == EndFirst /\ Prepared(k)
Completed(k) == k.state \in {"CompleteCommit", "CompleteAbort"}

Answer(code, k) == [code |-> code, kafka |-> k]

----------------------------------------------------------------------------
(* The transaction coordinator *)

(* The end is decided. TV2 raises the epoch with each end. `k.parts` get their markers one by one, later. *)
Decided(k, commit, marker) ==
    LET done == k.parts = {}
        state == IF commit THEN (IF done THEN "CompleteCommit" ELSE "PrepareCommit")
                           ELSE (IF done THEN "CompleteAbort" ELSE "PrepareAbort")
    IN  [k EXCEPT !.state = state, !.marker = IF done THEN None ELSE marker]

Prepare(k, commit) ==
    IF TV = 2 THEN Decided([k EXCEPT !.epoch = k.epoch + 1, !.last = k.epoch], commit, k.epoch + 1)
              ELSE Decided(k, commit, k.epoch)

(* The coordinator aborts the open transaction by itself, under an epoch that its owner does not have. *)
FenceOff(k) ==
    IF TV = 2 THEN Prepare(k, FALSE)
              ELSE Decided([k EXCEPT !.epoch = k.epoch + 1, !.last = None], FALSE, k.epoch + 1)

TimedOut(k) == FenceOff(k)

(* `held` is the epoch that the producer had, None if it has none. *)
InitProducerId(k, held) ==
    CASE Prepared(k) -> Answer("CONCURRENT_TRANSACTIONS", k)
      [] k.state = "Ongoing" -> Answer("CONCURRENT_TRANSACTIONS", FenceOff(k))  \* whoever asks
      [] k.state \notin {"PrepareCommit", "PrepareAbort", "Ongoing"} ->
           IF held = None
           THEN Answer("NONE", [k EXCEPT !.epoch = k.epoch + 1, !.last = None, !.state = "Empty"])
           ELSE IF held = k.epoch
           THEN Answer("NONE", [k EXCEPT !.epoch = k.epoch + 1, !.last = k.epoch, !.state = "Empty"])
           ELSE IF held = k.last  \* a resend
           THEN Answer("NONE", [k EXCEPT !.state = "Empty"])
           ELSE Answer("PRODUCER_FENCED", k)

(* AddPartitionsToTxn, AddOffsetsToTxn; in TV2 a leader's request before the first append. *)
AddPartitions(k, epoch, parts) ==
    CASE epoch # k.epoch /\ ~MustWait(k) -> Answer("PRODUCER_FENCED", k)
      [] MustWait(k) \/ (epoch = k.epoch /\ Prepared(k)) -> Answer("CONCURRENT_TRANSACTIONS", k)
      [] epoch = k.epoch /\ ~Prepared(k) ->
           Answer("NONE", [k EXCEPT !.state = "Ongoing", !.parts = @ \cup parts])

(* TV1 with verification: what a leader asks before the first append. *)
Verify(k, epoch, p) ==
    IF epoch # k.epoch THEN "PRODUCER_FENCED"
    ELSE IF Prepared(k) THEN "CONCURRENT_TRANSACTIONS"
    ELSE IF p \in k.parts THEN "NONE" ELSE "TRANSACTION_ABORTABLE"

EndTxn(k, epoch, commit) ==
    LET resend == TV = 2 /\ k.epoch = epoch + 1
        may == IF TV = 2 /\ Prepared(k) THEN resend ELSE epoch = k.epoch \/ (resend /\ Completed(k))
        ended == k.state \in {"PrepareCommit", "CompleteCommit"}
    IN  IF MustWait(k) THEN Answer("CONCURRENT_TRANSACTIONS", k)
        ELSE IF ~may THEN Answer("PRODUCER_FENCED", k)
        ELSE IF k.state = "Ongoing" THEN Answer("NONE", Prepare(k, commit))
        ELSE IF k.state = "Empty" \/ (TV = 2 /\ ~resend)
        THEN IF commit \/ TV < 2 THEN Answer("INVALID_TXN_STATE", k) ELSE Answer("NONE", Prepare(k, FALSE))
        ELSE IF commit # ended THEN Answer("INVALID_TXN_STATE", k)
        ELSE IF Prepared(k) THEN Answer("CONCURRENT_TRANSACTIONS", k)
        ELSE Answer("NONE", k)

----------------------------------------------------------------------------
(* The leaders *)

Seen(log, epoch, size) ==
    [log EXCEPT !.epoch = epoch,
                !.first = IF log.epoch = epoch /\ size = 0 THEN log.first ELSE size]

(* A marker of an older epoch than the leader has seen is dropped. *)
Marked(log, epoch, commit) ==
    IF epoch < log.epoch THEN log
    ELSE [Seen(log, epoch, 0) EXCEPT !.open = FALSE, !.pending = << >>,
                                     !.visible = IF commit THEN @ \o log.pending ELSE @]

WriteMarker(k, p) ==
    LET left == k.parts \ {p}
        commit == k.state = "PrepareCommit"
        marked == [k EXCEPT !.log[p] = Marked(@, k.marker, commit), !.parts = left]
    IN  IF left # {} THEN marked
        ELSE [marked EXCEPT !.state = IF commit THEN "CompleteCommit" ELSE "CompleteAbort", !.marker = None]

(* Whether the coordinator lets the leader of `p` append; in TV2 this adds `p` to the transaction. *)
LetIn(k, epoch, p) ==
    LET log == k.log[p]
    IN  IF TV = 2
        THEN IF log.open /\ log.epoch = epoch THEN Answer("NONE", k) ELSE AddPartitions(k, epoch, {p})
        ELSE IF ~Verification \/ log.open THEN Answer("NONE", k) ELSE Answer(Verify(k, epoch, p), k)

(* Produce of one record batch with sequence number 0. A resend is recognized by epoch and sequence numbers, so by *)
(* its size, never by its content.                                                                                *)
Produce(k, epoch, p, records) ==
    LET let == LetIn(k, epoch, p)
        log == let.kafka.log[p]
    IN  IF let.code # "NONE" THEN let
        ELSE IF log.epoch = epoch /\ log.first = Len(records) THEN let
        ELSE IF epoch < log.epoch THEN Answer("PRODUCER_FENCED", let.kafka)
        ELSE IF log.epoch = epoch /\ log.first # 0 THEN Answer("OUT_OF_ORDER_SEQUENCE_NUMBER", let.kafka)
        ELSE Answer("NONE", [let.kafka EXCEPT !.log[p] =
                                [Seen(log, epoch, Len(records)) EXCEPT !.open = TRUE, !.pending = @ \o records]])

(* TxnOffsetCommit: it has no sequence numbers, and the last one of a transaction counts. *)
CommitOffsets(k, epoch, offsets) ==
    LET let == LetIn(k, epoch, Group)
        log == let.kafka.log[Group]
    IN  IF let.code # "NONE" THEN let
        ELSE IF epoch < log.epoch THEN Answer("PRODUCER_FENCED", let.kafka)
        ELSE Answer("NONE", [let.kafka EXCEPT !.log[Group] =
                                [Seen(log, epoch, 0) EXCEPT !.open = TRUE, !.pending = <<offsets>>]])

(* What will be visible once every marker of a decided commit is written. *)
Fate(k, p) ==
    k.log[p].visible \o (IF k.state = "PrepareCommit" /\ p \in k.parts /\ k.marker >= k.log[p].epoch
                         THEN k.log[p].pending ELSE << >>)
=============================================================================
