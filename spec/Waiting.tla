------------------------------- MODULE Waiting -------------------------------
(***************************************************************************)
(* While the end of a transaction is decided and not yet complete, Kafka 4 *)
(* answers CONCURRENT_TRANSACTIONS to everybody, also to those whose epoch *)
(* is over (`EndFirst`).  Brokers of before fence these at once.  A driver *)
(* that is told to wait asks again: it learns later that it is fenced, and *)
(* nothing else changes.  So with EndFirst, every behaviour is one of the  *)
(* specification without it, where that driver takes its step later.  TLC  *)
(* checks just this, for EndFirst = TRUE: NothingNew.                      *)
(***************************************************************************)
EXTENDS SharedTransaction

AtOnce == INSTANCE SharedTransaction WITH EndFirst <- FALSE

NothingNew == AtOnce!Spec
=============================================================================
