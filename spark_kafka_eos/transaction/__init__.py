"""The shared transaction: one per micro-batch, appended to by many processes at once.

attempt             its states, events and legal transitions
hold                those of this process's hold on the transactional.id, and what the coordinator's answers say of it
steps               those of the protocol: what is sent, and what the two tables have of it
owner takeover loss keep the id, take it, lose it: which step comes next
doubt               was a commit applied that was not answered
shared              begin, let others append, commit or abort
two_phase table     the steps in between of a table that takes part: it looks, too, and commits before EndTxn
commit              a micro-batch, from the ledger's verdict to the commit
idempotent          the same for deliveryGuarantee=at-least-once, without a transaction
fence               keep stragglers out
recovery hanging    end what hangs, because the coordinator left out a marker
outcome             how it ended elsewhere
calls begun         allow one call per micro-batch; which batches were begun, and not committed
"""
