"""The settings that say which plugins are loaded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from perdure.runtime.kernel.settings import About


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which plugins are loaded."""

    demo: Annotated[bool, About(description="whether the plugin demo is loaded")] = True
    plugins: Annotated[
        list[str], About(description="folders with a plugin.toml, or folders of such folders")
    ] = []
    modules: Annotated[list[str], About(description="Python modules that declare plugins")] = []
    reload: Annotated[
        bool, About(description="whether plugins are loaded anew when their files change")
    ] = False
