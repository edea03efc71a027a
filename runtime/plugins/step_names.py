"""The names of the steps of one activation: each is used once. Pure, and light."""

from __future__ import annotations

from perdure.runtime.plugins.contract import StepError


class StepNames:
    """The names that were used."""

    def __init__(self) -> None:
        """None is used yet."""
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one that was given, by kind

    def claim(self, name: str | None, kind: str = "step") -> str:
        """Use a name, which must be a new one; without one, use the next of its kind."""
        name = name or self._next(kind)
        if name in self._used:
            raise StepError(
                f"step {name!r} was used before in this run; every step needs a name of its own"
            )
        self._used.add(name)
        return name

    def _next(self, kind: str) -> str:
        number = self._numbers.get(kind, 0) + 1
        while (name := f"{kind}-{number}") in self._used:
            number += 1
        self._numbers[kind] = number
        return name
