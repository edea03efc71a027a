"""The memory budget: how many bytes the peers of a server may make it hold.

Whatever stays in memory because a peer sends slowly, takes slowly or asks for much is held in the
account of its connection: heads and bodies on their way in, messages that were decoded, calls and
follows that are open, answers and events on their way out. It is counted before it is kept, by the
bytes that it takes here and not by those on the wire, and given back when it is gone.

One rule shares the budget, the one by which switches share their buffers (dynamic thresholds): an
account may hold a quarter of what the others leave. Alone it has a quarter of the budget. Of very
many that want all they can get, each has an equal part, and what they leave is enough for somebody
who comes later and wants little. Nobody is known to be hostile, and nobody has to be.

    with budget.account() as account:
        with account.hold(len(body)) as held:
            ...
            held.resize(len(answer))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from perdure.runtime.kernel.errors import OperationError
from perdure.runtime.kernel.figures import Figure, figure

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MEMORY_BUDGET: Final = 64 << 20
SHARE: Final = 4  # an account may hold one part in so many
_FULL: Final = (
    "no memory is left for this connection;"
    " take what you were sent, send less at once, or try again later"
)


class Budget:
    """What all peers may make a server hold."""

    def __init__(self, limit: int = MEMORY_BUDGET) -> None:
        """Begin with nothing held."""
        self.limit = limit
        self.held = 0
        self.refusals = 0  # since the start

    @property
    def share(self) -> int:
        """What one account may hold while there is no other."""
        return self.limit // SHARE

    def account(self) -> Account:
        """Open the account of a connection."""
        return Account(self)

    def facts(self) -> Mapping[str, Any]:
        """Give what clients want to know of it, for the capabilities."""
        return {"limits": {"memory_bytes": self.limit, "connection_memory_bytes": self.share}}

    def figures(self) -> Iterable[Figure]:
        """Give what operators want to know of it."""
        yield figure("memory_budget_bytes", "gauge", "What peers may make it hold.", self.limit)
        yield figure("memory_held_bytes", "gauge", "What is held for peers.", self.held)
        yield figure(
            "memory_refusals",
            "counter",
            "Requests, messages and answers refused for want of memory.",
            self.refusals,
        )


class Account:
    """What one connection makes the server hold. Leaving the block gives all of it back."""

    __slots__ = ("_budget", "held")

    def __init__(self, budget: Budget) -> None:
        """Begin with nothing held."""
        self._budget = budget
        self.held = 0

    @property
    def room(self) -> int:
        """How many bytes more it may hold now; negative if others have come since."""
        budget = self._budget
        return (budget.limit - budget.held + self.held) // SHARE - self.held

    def hold(self, size: int = 0) -> Hold:
        """Count bytes that are about to be kept, or refuse them with OVERLOADED."""
        hold = Hold(self)
        hold.resize(size)
        return hold

    def add(self, size: int) -> None:
        """Count so many bytes more, or fewer; more than there is room for are refused."""
        if size > 0 and size > self.room:
            self._budget.refusals += 1
            raise OperationError("OVERLOADED", _FULL)
        self.held += size
        self._budget.held += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.held -= self.held
        self._budget = Budget(0)  # whatever is still released later is not counted again


class Hold:
    """Some bytes of an account, until they are released; leaving the block does that."""

    __slots__ = ("_account", "size")

    def __init__(self, account: Account) -> None:
        """Begin with nothing."""
        self._account = account
        self.size = 0

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on. If they are refused, all is as it was."""
        self._account.add(size - self.size)
        self.size = size

    def grow(self, more: int) -> None:
        """Hold so many bytes more."""
        self._account.add(more)
        self.size += more

    def release(self) -> None:
        """Give all of it back; a second time there is nothing to give."""
        self.resize(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
