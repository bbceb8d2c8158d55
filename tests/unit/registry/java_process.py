"""A JVM that answers lines of questions in their order: Java's own implementation of a format, for a whole module."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from spark_kafka_eos.testing.jars import Bundle, files
from spark_kafka_eos.testing.java import java


class Java:
    """Runs the one file of `source`, whose name is `Name.java`, with the jars of `bundle`."""

    def __init__(self, source: Path, bundle: Bundle) -> None:
        command: list[str | Path] = [
            java(),
            "-XX:TieredStopAtLevel=1",
            "-Xmx512m",
            "-cp",
            ":".join(map(str, files(bundle))),
            source,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._questions: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._ask, self._listen)]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._questions.put("")  # the end of its input is the end of the process
        for thread in self._threads:
            thread.join(60)
        assert self._process.wait(60) == 0

    def ask(self, question: str) -> None:
        self._questions.put(question + "\n")

    def answer(self) -> Any:
        return json.loads(self._answers.get(timeout=60))

    def _ask(self) -> None:
        assert self._process.stdin is not None
        with self._process.stdin as questions:
            while question := self._questions.get():
                questions.write(question)
                if self._questions.empty():
                    questions.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
