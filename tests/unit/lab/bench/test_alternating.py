"""Sides take turns, round after round; the first round is not measured."""

from lab.bench.alternating import Side, alternate


def test_each_side_runs_once_a_round_between_its_before_and_after():
    done = []

    def side(name):
        return Side(
            name=name,
            run=lambda: done.append(f"{name} runs"),
            before=lambda: done.append(f"{name} before"),
            after=lambda: done.append(f"{name} after"),
        )

    alternate([side("a"), side("b")], records=1, runs=1)
    each = {name: [f"{name} {step}" for step in ("before", "runs", "after")] for name in "ab"}
    assert done == [*each["a"], *each["b"], *each["b"], *each["a"]]


def test_the_first_round_is_not_measured_and_before_and_after_never_are():
    now = 0.0

    def takes(seconds):
        def work():
            nonlocal now
            now += seconds

        return work

    costs = iter([100.0, 2.0, 3.0])

    def run():
        takes(next(costs))()

    side = Side(name="a", run=run, before=takes(50.0), after=takes(70.0))
    (found,) = alternate([side], records=10, runs=2, clock=lambda: now)
    assert found.seconds == (2.0, 3.0)
    assert found.records == 10


def test_a_side_that_measures_itself_is_believed():
    (found,) = alternate([Side(name="java", run=lambda: 1.25)], records=1, runs=2)
    assert found.seconds == (1.25, 1.25)


def test_progress_goes_from_nothing_to_all():
    seen = []
    alternate(
        [Side(name="a", run=lambda: 1.0)],
        records=1,
        runs=2,
        show=lambda what, done, total: seen.append((what, done, total)),
    )
    assert seen == [("a (warm-up)", 0, 3), ("a", 1, 3), ("a", 2, 3), ("done", 3, 3)]


def test_rounds_to_warm_up_are_not_measured():
    seconds = iter([8.0, 4.0, 2.0, 1.0])
    (found,) = alternate([Side(name="a", run=lambda: next(seconds))], records=1, runs=1, warm_up=3)
    assert found.seconds == (1.0,)
