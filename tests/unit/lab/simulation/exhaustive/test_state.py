"""What two states have in common when they are the same, and what they may differ in."""

from __future__ import annotations

from collections import deque

from lab.simulation.exhaustive.state import digest, frozen
from lab.simulation.partition import Partition


def test_partitions_with_the_same_log_and_producers_are_the_same_and_others_are_not():
    def written(*epochs, at=0):
        partition = Partition()
        for epoch in epochs:
            partition.append(1, epoch, 0, ("a",))
        partition.mark(1, epochs[-1], True, timestamp_ms=at)
        return frozen(partition)

    assert written(0) == written(0)
    assert written(0) == written(0, at=7)
    assert written(0) != written(1)
    assert written(0, 1) != written(1)


def test_the_order_counts_in_lists_but_not_in_sets_and_dictionaries():
    assert frozen([1, 2]) != frozen([2, 1])
    assert frozen(deque([1, 2])) == frozen((1, 2))
    assert frozen({1: "a", 2: "b"}) == frozen({2: "b", 1: "a"})
    assert frozen({"a", "b"}) == frozen({"b", "a"})
    assert frozen({1: "a"}) != frozen({1: "b"})


def test_functions_are_no_part_of_a_state():
    class Keeps:
        def __init__(self, function):
            self.number, self.function = 1, function

    assert frozen(Keeps(len)) == frozen(Keeps(print))


def test_what_a_class_inherits_is_a_part_of_the_state():
    class Slotted:
        __slots__ = ("inherited",)

        def __init__(self, inherited):
            self.inherited = inherited

    class Derived(Slotted):
        __slots__ = ("own",)

        def __init__(self, inherited, own):
            super().__init__(inherited)
            self.own = own

    class WithDictionary(Slotted):
        pass

    assert frozen(Derived(1, 2)) == frozen(Derived(1, 2))
    assert frozen(Derived(1, 2)) != frozen(Derived(7, 2))
    assert frozen(Derived(1, 2)) != frozen(Derived(1, 7))
    assert frozen(WithDictionary(1)) != frozen(WithDictionary(7))


def test_digests_of_different_values_differ():
    assert len({digest(value) for value in (1, "1", b"1", (1,), None)}) == 5
