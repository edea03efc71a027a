from __future__ import annotations

import random
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.crash.answers import Answer, with_answer
from tests.crash.child import Child
from tests.crash.soundness import LOG_NAME, problems

if TYPE_CHECKING:
    from pathlib import Path

    from tests.crash.answers import Answered

APPENDERS: Final = 20
PAUSE: Final = 0.05  # seconds between an appender's appends: a log of a size that can be verified
SHORTEST, LONGEST = 0.05, 0.3  # seconds of writing before the kill


def writer(directory: Path) -> Child:
    """Start a writer that waits for a word before it opens the log."""
    options = ("--appends", 0, "--appenders", APPENDERS, "--pause", PAUSE, "--wait")
    return Child("writing_child", directory, *options, "--checkpoint-bytes", 2_000_000)


@pytest.mark.parametrize("kills", [pytest.param(4), pytest.param(200, marks=pytest.mark.soak)])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, kills: int) -> None:
    """However often its writer is killed, a log keeps every acknowledged record, in order."""
    seed = random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    answers: list[Answered] = []
    with ExitStack() as children:
        child = children.enter_context(writer(tmp_path))
        for kill in range(kills):
            child.go()
            child.wait_for_ack()
            time.sleep(rng.uniform(SHORTEST, LONGEST))
            child.kill()
            answers += child.answers
            child = children.enter_context(writer(tmp_path))  # it starts while the log is checked
            assert problems(tmp_path / LOG_NAME, answers) == [], f"seed {seed}, kill {kill}"
    assert len(with_answer(answers, Answer.ACK)) > 20 * kills
