"""A program under test in a process of its own, which dies with the test."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Final, Self

from tests.crash.answers import Answer, heard
from tests.repository.tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.answers import Answered


PATIENCE: Final = 30.0  # seconds after which a child that says nothing hangs


class Child:
    """A running program of this directory, listened to from a thread.

    Its standard input ends when this process does; the programs see to the rest.
    """

    def __init__(self, program: str, *arguments: object, under: Sequence[str] = ()) -> None:
        words = [*under, sys.executable, "-m", f"tests.crash.{program}", *map(str, arguments)]
        self.lines: list[bytes] = []
        self._process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._acknowledged = threading.Event()
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def answers(self) -> list[Answered]:
        """The answers so far; after ``wait`` or ``kill`` all of them."""
        return heard(self.lines)

    def go(self) -> None:
        """Let a program that waits begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    def wait_for_ack(self) -> None:
        """Wait until something was acknowledged."""
        assert self._acknowledged.wait(PATIENCE), self.lines[-5:]

    def wait(self, patience: float = PATIENCE) -> int:
        """Wait for its end; give its exit status."""
        code = self._process.wait(patience)
        self._listener.join(PATIENCE)
        return code

    def kill(self) -> None:
        """End it with SIGKILL, as the kernel would."""
        self._process.kill()
        self.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with open(self._process.stdout.fileno(), "rb", closefd=False) as pipe:
            for line in pipe:
                self.lines.append(line)
                if line.startswith(Answer.ACK.encode()):
                    self._acknowledged.set()
