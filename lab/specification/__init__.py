"""The specification of the shared transaction, spec/*.tla, checked by TLC.

models     the bounds and guards with which TLC checks it
tlc        runs TLC on a model; downloads it first
values     TLC's output of a state, as Python's values
timeline   a counterexample, as lines that a person can follow
steps      what the simulation records, as steps of the specification
traces     whether the specification allows these steps
"""
