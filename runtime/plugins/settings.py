"""The settings that say which plugins are loaded, and how their processes are closed off."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from perdure.runtime.kernel.settings import About

SandboxMode = Literal["auto", "required", "off"]


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which plugins are loaded, and how their processes are closed off."""

    demo: Annotated[bool, About(description="whether the plugin demo is loaded")] = True
    plugins: Annotated[
        list[str], About(description="folders with a plugin.toml, or folders of such folders")
    ] = []
    modules: Annotated[list[str], About(description="Python modules that declare plugins")] = []
    reload: Annotated[
        bool, About(description="whether plugins are loaded anew when their files change")
    ] = False
    sandbox: Annotated[
        SandboxMode,
        About(
            description="how processes are closed off: as far as possible, wholly, or not at all"
        ),
    ] = "auto"
