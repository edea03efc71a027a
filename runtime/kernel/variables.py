"""Variables of the environment that are no settings: what the process of an entry is told. Light.

A program that an entry starts inherits them, and may be ``perdure`` itself.
"""

from __future__ import annotations

from typing import Final

READ_FD: Final = "PERDURE_READ_FD"
WRITE_FD: Final = "PERDURE_WRITE_FD"
CODE: Final = "PERDURE_CODE"  # a folder that a Python process imports its plugin from
MEMORY: Final = "PERDURE_MEMORY"  # KiB that a process may take
VARIABLES: Final = (READ_FD, WRITE_FD, CODE, MEMORY)
