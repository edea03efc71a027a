"""The plugins of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.kernel.features import Features
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.plugins.loading import LoadedPlugins


def loaded_for(invocation: Invocation) -> LoadedPlugins:
    """Load the plugins that the settings name; warn people of those that cannot be loaded."""
    from perdure.runtime.plugins.loading import load_plugins
    from perdure.runtime.runs.settings import RunSettings

    loaded = load_plugins(invocation.settings.of(RunSettings))
    if not invocation.json:
        for problem in loaded.problems:
            invocation.warn(str(problem))
    return loaded


def executing(invocation: Invocation, loaded: LoadedPlugins) -> Features:
    """Give the features for a process that executes single runs and leaves the others alone."""
    from perdure.runtime.runs.feature import RunsFeature

    return invocation.features.replacing(RunsFeature(loaded=loaded, only=()))
