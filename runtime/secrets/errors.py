"""The code of errors that secrets add to the table."""

from __future__ import annotations

from typing import Final

from perdure.runtime.kernel.errors import ErrorKind, declare_errors

SECRET_ERRORS: Final = declare_errors(
    {
        "SECRET_REQUIRED": ErrorKind(
            409,
            retriable=False,
            meaning="a secret is not there any more; pass it again",
            command="Pass the secret again: perdure retry RUN --secret NAME=VALUE.",
        ),
    }
)
