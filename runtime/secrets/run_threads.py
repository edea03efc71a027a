"""Threads that an entry starts work for its run.

Python gives a new thread an empty context, and a thread does not know who has started it. So while
hosts run, starting a thread and submitting to a pool of threads remember the run they are done for.
What that costs others is one look at a variable for each thread.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread  # noqa: TID251 - it starts none, and sees those that others start
from typing import TYPE_CHECKING, Any, Final

from perdure.runtime.secrets.logged_run import LoggedRun, current_run, work_for, working_for

if TYPE_CHECKING:
    from collections.abc import Callable

_start: Final = Thread.start
_submit: Final = ThreadPoolExecutor.submit


def install() -> None:
    """Let threads work for the run of whoever starts them."""
    Thread.start = _started  # type: ignore[assignment, method-assign]
    ThreadPoolExecutor.submit = _submitted  # type: ignore[assignment, method-assign]


def uninstall() -> None:
    """Start threads as ever."""
    Thread.start = _start  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = _submit  # type: ignore[method-assign]


def _started(thread: Thread) -> None:
    run = current_run()
    if run is not None:
        body = thread.run

        def work() -> None:
            del thread.run  # or the thread would hold itself
            work_for(run)  # to the end of the thread, which tells what its body has raised
            body()

        thread.run = work  # type: ignore[method-assign]
    _start(thread)


def _submitted(
    pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **more: Any
) -> Future[Any]:
    """A pool may serve many runs: its threads work for whoever submits."""
    return _submit(pool, _done_for, current_run(), fn, *args, **more)


def _done_for(run: LoggedRun | None, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - what it returns
    with working_for(run):
        return fn(*args, **more)
