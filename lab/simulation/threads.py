"""Threads of a simulated process: fibers that take turns with everything else, instead of the product's threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lab.simulation.world import Process, World
from spark_kafka_eos.real_time.supervisor import Threads


class Thread(Process):
    """A fiber more of a process that is one already: it dies and pauses with it."""

    def __init__(self, of: Process, function: Callable[[], None]) -> None:
        super().__init__(of.world, of.name, function)
        self.life = of
        of.threads.append(self)

    def die(self) -> None:
        self.life.die()


class Lock:
    """What at most one of several threads has at a time."""

    def __init__(self, world: World) -> None:
        self._world, self._is_free = world, True

    def __enter__(self) -> None:
        assert self._world.running is not None
        self._world.wait_until(self._world.running, lambda: self._is_free)
        self._is_free = False

    def __exit__(self, *_: object) -> None:
        self._is_free = True


class Fibers(Threads):
    """The product's threads of one process, which take turns with everything else."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def lock(self) -> Lock:
        return Lock(self._process.world)

    def run(self, work: Sequence[Callable[[], None]], failed: Callable[[], None]) -> None:
        world, process = self._process.world, self._process
        errors: list[Exception] = []

        def guarded(function: Callable[[], None]) -> None:
            try:
                function()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        def are_over() -> bool:
            return all(thread.fiber.done for thread in threads)

        threads = [Thread(process, partial(guarded, function)) for function in work]
        for thread in threads:
            world.start(thread)
        world.wait_until(process, lambda: bool(errors) or are_over())
        if not are_over():
            failed()
        world.wait_until(process, are_over)
        if errors:
            raise errors[0]
