"""A program that writes a log as fast as it is let, and says how each append was answered.

It ends when its standard input does, so it never outlives whoever started it. With ``--wait`` it
opens nothing before it has read a line there: it can be started ahead of time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

import perdure.eventlog.sqlite.store
from perdure.eventlog import (
    Append,
    Conflict,
    DiskFull,
    EventLog,
    LogClosed,
    NewEvent,
    OutcomeUnknown,
    RealEnv,
    SqliteStore,
    StoreFailed,
    StreamWrite,
    WrongExpectedVersion,
    open_log,
)
from tests.crash import mutants, workload
from tests.crash.answers import Answer, ask, say, unsettled
from tests.crash.soundness import LOG_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.eventlog import Receipt

SHARED: Final = [f"shared/{i}" for i in range(10)]
LOG_FAILED: Final = 70  # the exit status when the log closed itself
ABANDONED: Final = 71  # the exit status when standard input ended


@dataclass
class Appender:
    """One task's appends: to streams of its own, which it seals, and to streams that all share."""

    log: EventLog
    options: argparse.Namespace
    versions: dict[str, int]  # of the shared streams, as all appenders know them
    chance: random.Random
    own: str = ""
    own_version: int = 0

    async def run(self) -> None:
        """Append so many times, or (0) for ever."""
        done = 0
        while self.options.appends == 0 or done < self.options.appends:
            await self._append_once()
            done += 1
            await trio.sleep(self.chance.random() * 2 * self.options.pause)

    async def _append_once(self) -> None:
        ids = [self.log.env.new_id().bytes for _ in range(self.chance.choice([1, 1, 1, 2, 4]))]
        answers = self.options.answers
        try:
            with trio.fail_after(self.options.patience):
                await self._append_until_settled(ids)
        except DiskFull:
            say(answers, Answer.FULL, ids)
        except trio.TooSlowError:
            say(answers, Answer.GIVEN_UP, ids)
        except OutcomeUnknown:
            say(answers, Answer.UNKNOWN, ids)
            raise
        except LogClosed:
            say(answers, Answer.CLOSED, ids)
            raise

    async def _append_until_settled(self, ids: Sequence[bytes]) -> None:
        shared = self.chance.choice(SHARED)
        kind = self.chance.choice(["own", "own", "seal", "shared", "both"])
        new_work = self.chance.random() < self.options.new_work
        while True:
            append = self._append(workload.events(ids, seals=kind == "seal"), shared, kind)
            if self.options.asks:
                ask(self.options.answers, append)
            try:
                receipt = await self.log.append(append, new_work=new_work)
            except WrongExpectedVersion as exc:
                self.versions[exc.stream] = max(self.versions[exc.stream], exc.actual)
            else:
                say(self.options.answers, Answer.ACK, ids)
                self._remember(receipt)
                return

    def _append(self, made: Sequence[NewEvent], shared: str, kind: str) -> Append:
        if not self.own:
            self.own, self.own_version = f"own/{self.log.env.new_id()}", 0
        split = {"own": len(made), "shared": 0}.get(kind, 1)
        writes = []
        if made[:split]:
            sealed = kind == "seal"
            writes.append(StreamWrite(self.own, self.own_version, made[:split], seal=sealed))
        if made[split:]:
            writes.append(StreamWrite(shared, self.versions[shared], made[split:], "shared"))
        return Append(writes)

    def _remember(self, receipt: Receipt) -> None:
        for record in receipt.records:
            if record.scope == "shared":
                self.versions[record.stream] = max(self.versions[record.stream], record.version)
            else:
                self.own, self.own_version = "" if record.seal else record.stream, record.version


async def write_round(options: argparse.Namespace) -> None:
    """Open the log, let all appenders do their work, close it."""
    env = RealEnv()
    store = SqliteStore.open(options.directory / LOG_NAME, env=env)
    if options.largest_file:
        resource.setrlimit(resource.RLIMIT_FSIZE, (options.largest_file, options.largest_file))
    async with open_log(env, store) as log:
        await repeat(log, options)
        versions = {s: (await log.in_thread(store.stream_state, s)).version for s in SHARED}
        async with trio.open_nursery() as nursery:
            for _ in range(options.appenders):
                appender = Appender(log, options, versions, random.Random(env.random.random()))
                nursery.start_soon(appender.run)
    store.close()


async def repeat(log: EventLog, options: argparse.Namespace) -> None:
    """Make the appends again that another program left without an answer."""
    if options.repeat is None:
        return
    for append in unsettled(options.repeat.read_bytes().splitlines(keepends=True)):
        ids = [event.event_id for write in append.writes for event in write.events]
        try:
            await log.append(append)
        except Conflict:
            say(options.answers, Answer.CONFLICT, ids)
        else:
            say(options.answers, Answer.ACK, ids)


def end_with_standard_input() -> None:
    """Die with whoever started this program."""
    while os.read(0, 1024):
        pass
    os._exit(ABANDONED)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--answers", type=answers_file, default=1)
    parser.add_argument("--asks", action="store_true")
    parser.add_argument("--appenders", type=int, default=6)
    parser.add_argument("--appends", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--patience", type=float, default=float("inf"))
    parser.add_argument("--new-work", type=float, default=0.0)
    parser.add_argument("--checkpoint-bytes", type=int, default=8 << 20)
    parser.add_argument("--largest-file", type=int, default=0)
    parser.add_argument("--mutant", choices=[*mutants.ALL], default=None)
    parser.add_argument("--repeat", type=Path, default=None)
    parser.add_argument("--wait", action="store_true")
    return parser.parse_args()


def answers_file(path: str) -> int:
    """Open a file for answers."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def main() -> int:
    """Write, round after round."""
    options = parse()
    if options.wait:
        os.read(0, 1024)
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    perdure.eventlog.sqlite.store.CHECKPOINT_BYTES = options.checkpoint_bytes  # type: ignore[misc]
    if options.mutant is not None:
        mutants.ALL[options.mutant]()
    try:
        for _ in range(options.rounds):
            trio.run(write_round, options)
    except* (LogClosed, StoreFailed):
        os._exit(LOG_FAILED)  # as Perdure does: the next start is the recovery
    return 0


if __name__ == "__main__":
    sys.exit(main())
