"""Settings for tests, by name."""

from __future__ import annotations

from typing import Any, Final

from perdure.runtime.features import FEATURES
from perdure.runtime.kernel.settings import Settings, SettingsTable

TABLE: Final = SettingsTable(FEATURES.settings)


def settings_with(**values: Any) -> Settings:
    """Give settings with some values; the rest has its defaults."""
    return TABLE.settings(values)
