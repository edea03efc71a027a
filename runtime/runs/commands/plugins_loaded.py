"""The plugins of a command that executes runs itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.client.choice import Choice
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.plugins.loading import LoadedPlugins


def load_here(invocation: Invocation, choice: Choice, *only: str) -> LoadedPlugins | None:
    """Load the plugins that the settings name, unless a server is asked, which has its own.

    People are warned of those that cannot be loaded. Of the runs in the log, this process will
    execute ``only`` those named, and those that it creates.
    """
    from perdure.runtime.plugins.loading import load_plugins
    from perdure.runtime.runs.settings import RunSettings

    if not choice.is_here:
        return None
    loaded = load_plugins(invocation.settings.of(RunSettings))
    if not invocation.json:
        for problem in loaded.problems:
            invocation.warn(str(problem))
    execute_here(choice, loaded, *only)
    return loaded


def execute_here(choice: Choice, loaded: LoadedPlugins, *only: str) -> None:
    """Let this process, if it has to write itself, execute single runs with these plugins."""
    from perdure.runtime.runs.feature import RunsFeature

    choice.features = choice.features.replacing(RunsFeature(loaded=loaded, only=only))
