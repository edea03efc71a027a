"""Living through many seeds, and telling what went wrong in them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from perdure.eventlog.simulation import simulate
from tests.simulation.world import Violation

PROCESSES = 2
SAME_SEEDS = 10  # how many seeds are lived through twice

Live = Callable[[random.Random], Awaitable[str]]


def violation_of(live: Live, seed: int) -> str | None:
    """Live through a seed; tell which promise was broken, if any."""
    try:
        simulate(seed, live)
    except BaseException as exc:
        found = find(exc)
        if found is None:
            raise
        return f"seed {seed}: {found}"
    return None


def violations(live: Live, seeds: range) -> list[str]:
    """Live through many seeds, on all cores."""
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        found = pool.map(partial(violation_of, live), seeds, chunksize=20)
        return [violation for violation in found if violation]


def histories_of(module: str, hash_seed: int) -> tuple[str, ...]:
    """Live through some seeds in a process of its own; give what each of them came to."""
    program = (
        f"from perdure.eventlog.simulation import simulate; from {module} import live;"
        f"[print(simulate(seed, live)) for seed in range({SAME_SEEDS})]"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
    )
    return tuple(done.stdout.splitlines())


def find(error: BaseException) -> Violation | None:
    """Find a violation in a tree of exceptions."""
    if isinstance(error, Violation):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(find, error.exceptions)), None)
    return None
