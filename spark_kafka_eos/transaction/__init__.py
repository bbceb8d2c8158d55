"""The shared transaction: one per micro-batch, appended to by many processes at once.

states              states, events and legal transitions
shared              begin, let others append, commit or abort
two_phase           the same with a table that takes part: prepare, let the table commit, commit
commit              a micro-batch, from the ledger's verdict to the commit
idempotent          the same for deliveryGuarantee=at-least-once, without a transaction
fence ownership     keep stragglers out; whether somebody took the transactional.id
hanging outcome     end what hangs, because the coordinator left out a marker; how it ended elsewhere
calls begun         allow one call per micro-batch; which batches were begun, and not committed
"""
