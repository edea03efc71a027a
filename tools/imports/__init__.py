"""Pictures and figures of how packages import each other: ``python -m tools.imports``."""
