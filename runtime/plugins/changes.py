"""Changes: which sources of plugins have changed on disk, and rest.

A file that is being saved is seen half written; several files change one after the other. So a
change counts when nothing more of its source has changed from one look to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from perdure.runtime.plugins.loading import LoadOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.plugins.loading import PluginSource

    Stamps = Mapping[str, tuple[int, ...]]  # file -> what changes when it does


class Settled(NamedTuple):
    """What has changed and is quiet again."""

    changed: tuple[PluginSource, ...] = ()  # or new
    gone: tuple[PluginSource, ...] = ()


class Changes:
    """What is on disk, beside what is loaded."""

    def __init__(self, loaded: Mapping[PluginSource, Stamps]) -> None:
        """Begin with files as they were when they were loaded."""
        self._loaded: dict[PluginSource, Stamps | None] = dict(loaded)
        self._last = dict(loaded)

    def look(self, seen: Mapping[PluginSource, Stamps]) -> Settled:
        """Compare with what is seen now. What is told is taken to be loaded then."""
        last, self._last = self._last, dict(seen)
        changed = tuple(
            source
            for source, stamps in seen.items()
            if self._loaded.get(source) != stamps == last.get(source)
        )
        gone = tuple(each for each in self._loaded if each not in seen and each not in last)
        self._loaded |= {source: seen[source] for source in changed}
        for source in gone:
            del self._loaded[source]
        return Settled(changed, gone)

    def was_not_loaded(self, source: PluginSource) -> None:
        """Tell a source again when it rests: it changed while it was being loaded."""
        self._loaded[source] = None


def after_reload(before: LoadOutcome, now: LoadOutcome) -> LoadOutcome:
    """Give what a source offers: plugins that could not be loaded again go on as they were."""
    if not now.problems:
        return now
    return LoadOutcome({**before.plugins, **now.plugins}, now.problems)
