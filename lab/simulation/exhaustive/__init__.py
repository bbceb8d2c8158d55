"""All histories of a small query up to a bound, instead of those that seeds sample: stateless model checking.

    scenario   what is explored: the kind of history, and how much may go wrong in it
    answers    the answers to chance's questions: fixed, or all of them one after the other
    world      who goes on, and when a message arrives, in every order; time
    state      what two histories must have in common to go on alike
    explore    runs a history again for each choice in it, until no choice is left
    run        several scenarios in several processes

A history is a list of choices. The explorer runs it from the start with some of them given, takes the first option for
all others, and notes the other options on the way, each to be run later, those with the fewest departures from the
first options first. So the first history that is wrong has the fewest of them. A choice point whose state was met
before, with as much left of the bound, is not explored again.

Sources: CHESS (Musuvathi and others, 2008) for the re-execution and the bound on switches, delay-bounded scheduling
(Emmi, Qadeer and Rakamarić, 2011) for what it counts.

Not obvious:
- Everything but the choices is the seeded mode's: `history.Life`, `network`, `query`, and the judge in `check`.
- A process is interrupted only before a step that may depend on another one: not before it looks up a broker.
"""
