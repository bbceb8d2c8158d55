"""The value of the option `resolve`: the operator's words. Pure. Apart from the refusals that name them, because the
preflight needs only this.
"""

from __future__ import annotations

AND = "; "  # between the words of one value


def states(resolve: str | None, word: str) -> bool:
    """Whether the operator's value of `resolve` has this word. It may have several that take something, and one that
    settles a batch: two of those could contradict each other.
    """
    words = [] if resolve is None else resolve.split(AND)
    settling = [each for each in words if not each.startswith("take-")]
    return word == resolve or (len(settling) <= 1 and word in words)
