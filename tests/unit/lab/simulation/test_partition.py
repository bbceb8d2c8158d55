"""The model's log: duplicates, epochs, sequences, what is stable and what is visible."""

from __future__ import annotations

from lab.simulation.partition import Partition


def values(partition):
    return [value for entry in partition.committed() for value in entry.content]


def test_what_is_committed_is_visible_and_what_is_aborted_is_not():
    partition = Partition()
    partition.append(1, 0, 0, ("a", "b"))
    partition.append(2, 0, 0, ("x",))
    assert (partition.last_stable_offset, values(partition)) == (0, [])
    partition.mark(1, 0, commit=True)
    assert (partition.last_stable_offset, values(partition)) == (2, ["a", "b"])
    partition.mark(2, 0, commit=False)
    assert partition.last_stable_offset == partition.end_offset == 5
    assert values(partition) == ["a", "b"]


def test_a_duplicate_is_told_by_its_sequences_and_not_by_what_it_holds():
    partition = Partition()
    assert partition.append(1, 0, 0, ("a", "b")) == (0, 0)
    assert partition.append(1, 0, 0, ("c", "d")) == (0, 0)
    assert partition.append(1, 0, 0, ("c",)) == (45, -1)
    assert partition.append(1, 0, 3, ("c",)) == (45, -1)
    assert partition.append(1, 0, 2, ("c",)) == (0, 2)
    partition.mark(1, 0, commit=True)
    assert values(partition) == ["a", "b", "c"]


def test_of_six_batches_the_first_is_no_longer_a_known_duplicate():
    partition = Partition()
    for sequence in range(6):
        partition.append(1, 0, sequence, (sequence,))
    assert partition.append(1, 0, 0, ("again",)) == (45, -1)
    assert partition.append(1, 0, 1, ("again",)) == (0, 1)


def test_an_older_epoch_is_refused_and_a_newer_one_starts_at_0():
    partition = Partition()
    partition.append(1, 5, 0, ("a",))
    assert partition.append(1, 4, 0, ("late",)) == (47, -1)
    partition.mark(1, 6, commit=False)
    assert partition.append(1, 5, 1, ("late",)) == (47, -1)
    assert partition.append(1, 6, 1, ("b",)) == (45, -1)
    assert partition.append(1, 6, 0, ("b",)) == (0, 2)


def test_sequences_wrap_to_0():
    partition = Partition()
    partition.append(1, 0, 2**31 - 2, ("a", "b"))
    assert partition.append(1, 0, 0, ("c",)) == (0, 2)
