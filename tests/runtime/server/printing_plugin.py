"""A plugin that says its secret wherever the server's process lets it."""

from __future__ import annotations

import logging
import sys
import threading
import warnings

from perdure import RunContext, Secret, SyncRunContext, entry, plugin


def say_everywhere(token: str) -> None:
    """Print, warn, log and fail."""
    print("printed", token)  # noqa: T201 - the point
    print("printed as an error", token, file=sys.stderr)  # noqa: T201
    sys.stdout.buffer.write(f"printed bytes {token}\n".encode())
    warnings.warn(f"warned of {token}", stacklevel=1)
    logging.getLogger("mine").warning("logged %s", token)


def fail(token: str) -> None:
    """Raise where nobody catches it."""
    say_everywhere(token)
    raise ValueError(f"raised {token}")


@plugin("printing")
class Printing:
    """Entries in the server's process."""

    @entry
    async def inline(self, ctx: RunContext, token: Secret) -> None:
        """Say it in a task and in a thread."""
        say_everywhere(token)
        self._in_a_thread(token)

    @entry(where="thread")
    def threaded(self, ctx: SyncRunContext, token: Secret) -> None:
        """Say it in a thread, and in another."""
        say_everywhere(token)
        self._in_a_thread(token)

    def _in_a_thread(self, token: str) -> None:
        thread = threading.Thread(target=fail, args=(token,), name="of the entry")
        thread.start()
        thread.join()
