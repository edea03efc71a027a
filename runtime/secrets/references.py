"""Where references to secrets lead: variables of the process, or files of a folder.

``{"secret": "github"}`` is the variable ``PERDURE_SECRET_GITHUB``, or else the file ``github`` in
the folder ``secrets`` of the data directory, which only its owner may be able to read.

A tenant may refer to what is granted to it: ``acme:github`` grants one secret, ``acme:git*`` all
whose names begin so, ``*:github`` grants it to all tenants. To others it does not exist.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from perdure.runtime.kernel.variables import SECRET_PREFIX
from perdure.runtime.secrets.sealed_files import read_private

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDER: Final = "secrets"
MAX_BYTES: Final = 64 << 10
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
ALL_TO_ALL: Final = ("*:*",)


class SecretNotFound(Exception):
    """A reference leads nowhere. The message names it and says what to do."""


class SecretSource:
    """The secrets that can be referred to."""

    def __init__(
        self,
        variables: Mapping[str, str] | None = None,
        folder: Path | None = None,
        *,
        granted: Sequence[str] = ALL_TO_ALL,
    ) -> None:
        """Look into variables, then into a folder, if there are any."""
        self._variables = variables or {}
        self._folder = folder
        self._granted = [(tenant, name) for tenant, _, name in (g.rpartition(":") for g in granted)]

    def find(self, name: str, tenant: str) -> str:
        """Give the value of a secret to a tenant. Blocks; called in a thread."""
        if not _NAME.fullmatch(name):
            raise SecretNotFound(
                f"{name[:100]!r} is no name of a secret: it has letters, digits, and . _ - inside"
            )
        variable = variable_of(name)
        value = None
        if self._is_granted(name, tenant):
            value = self._variables.get(variable) or self._in_file(name)
        if not value:
            where = f"set {variable}" + (
                f", or put it into the file {FOLDER}/{name} of the data directory"
                if self._folder
                else ""
            )
            raise SecretNotFound(f"there is no secret {name!r}: {where}")
        return value

    def _is_granted(self, name: str, tenant: str) -> bool:
        return any(
            whose in {"*", tenant} and (what == name or _begins_as(name, what))
            for whose, what in self._granted
        )

    def _in_file(self, name: str) -> str | None:
        if self._folder is None:
            return None
        try:
            data = read_private(self._folder / name, MAX_BYTES + 1)
            text = data.decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise SecretNotFound(f"secret {name!r} cannot be read: it is not UTF-8") from None
        except OSError as error:
            why = error.strerror or str(error)
            raise SecretNotFound(f"secret {name!r} cannot be read: {why}") from error
        if len(data) > MAX_BYTES:
            raise SecretNotFound(f"secret {name!r} has more than {MAX_BYTES} bytes")
        return text.removesuffix("\n").removesuffix("\r")


def _begins_as(name: str, pattern: str) -> bool:
    return pattern.endswith("*") and name.startswith(pattern[:-1])


def variable_of(name: str) -> str:
    """Name the variable that holds a secret."""
    return SECRET_PREFIX + name.upper().replace("-", "_").replace(".", "_")
