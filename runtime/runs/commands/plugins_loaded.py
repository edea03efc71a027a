"""The plugins of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perdure.runtime.kernel.terminal.invocation import Invocation
    from perdure.runtime.plugins.loading import Loaded


def loaded_for(invocation: Invocation) -> Loaded:
    """Load plugins; warn of those that cannot be loaded."""
    from perdure.runtime.plugins.loading import load_plugins

    loaded = load_plugins(invocation.settings)
    if not invocation.json:
        for problem in loaded.problems:
            invocation.say(f"Warning: {problem}", err=True)
    return loaded
