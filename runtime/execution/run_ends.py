"""The ends and changes of runs, for those who wait for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from perdure.actors.folded import Folded
from perdure.actors.run.core import Run


class LetGo(Exception):
    """The host goes down before the run has ended; the next one goes on with it."""


def has_come(folded: Folded[Run], after: int | None) -> bool:
    """Tell whether a run has ended, or has a record after a position."""
    return folded.state.status.is_terminal or (after is not None and folded.mark.position > after)


@dataclass(eq=False, slots=True)
class _End:
    """What somebody waits for; without a state, it will not come here."""

    after: int | None
    came: trio.Event = field(default_factory=trio.Event)
    folded: Folded[Run] | None = None


class Ends:
    """Who waits for the end of which run, or for its next change."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._awaited: dict[str, list[_End]] = {}  # one for each who waits
        self._let_go = False

    async def of(self, run_id: str, after: int | None = None) -> Folded[Run]:
        """Wait for the end of a run, or for a record of it after a position, or raise LetGo.

        Neither has come yet.
        """
        if self._let_go:
            raise LetGo
        end = _End(after)
        awaited = self._awaited.setdefault(run_id, [])
        awaited.append(end)
        try:
            await end.came.wait()
        finally:
            awaited.remove(end)
            if not awaited:
                del self._awaited[run_id]
        if end.folded is None:
            raise LetGo
        return end.folded

    def tell(self, folded: Folded[Run]) -> None:
        """Tell all who wait for it that a run has ended or changed."""
        for end in self._awaited.get(folded.state.created.run_id, ()):
            if end.folded is None and has_come(folded, end.after):
                end.folded = folded
                end.came.set()

    def let_go(self) -> None:
        """Tell all who wait that no end is to come here."""
        self._let_go = True
        for awaited in self._awaited.values():
            for end in awaited:
                end.came.set()
