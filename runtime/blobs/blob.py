"""A blob: bytes of any size, known by the scope they belong to and by their hash.

Events hold its address as ``perdure:blob/<scope>/<sha256>``. A scope is the id of a session or of a
run, which we mint ourselves; no name that a user has chosen can be one. Clients are shown a path of
the server instead, ``/runs/<run>/blobs/<sha256>``, which they can fetch.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from perdure.runtime.kernel.errors import ErrorKind, declare_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.actors.run.core import Run

BLOB_URL: Final = "perdure:blob/"  # and the scope, a slash, and the hash
_SCOPE: Final = r"[0-9a-z][0-9a-z-]{0,63}"
_SHA256: Final = r"[0-9a-f]{64}"
_SCOPE_NAME: Final = re.compile(_SCOPE)
_URL: Final = re.compile(f"{BLOB_URL}({_SCOPE})/({_SHA256})")
_PATH: Final = re.compile(f"/runs/({_SCOPE})/blobs/({_SHA256})")
_MENTION: Final = re.compile(
    f"(?:{BLOB_URL}({_SCOPE})/|/runs/({_SCOPE})/blobs/)({_SHA256})".encode()
)


BLOB_ERRORS: Final = declare_errors(
    {
        "BLOB_NOT_FOUND": ErrorKind(
            404,
            retriable=False,
            meaning="there is no such blob",
            remedy="read the run's exports: `binary_url` ends with the hash",
        ),
        "BLOB_DAMAGED": ErrorKind(
            500,
            retriable=False,
            meaning="the disk has changed the blob",
            remedy="restore it from a backup, or run its run again",
        ),
        "QUOTA_EXCEEDED": ErrorKind(
            507,
            retriable=False,
            meaning="there is no room for more blobs",
            remedy="remove old data or raise the quota",
        ),
    }
)


class Blob(NamedTuple):
    """The address of bytes."""

    scope: str
    sha256: str

    @property
    def url(self) -> str:
        """The address as events hold it."""
        return f"{BLOB_URL}{self.scope}/{self.sha256}"


def blob_at(url: str) -> Blob | None:
    """Give the blob that an address names, if it is one."""
    found = _URL.fullmatch(url)
    return None if found is None else Blob(found[1], found[2])


def blob_path(run_id: str, sha256: str) -> str:
    """Give the path at which a server offers a blob of a run."""
    return f"/runs/{run_id}/blobs/{sha256}"


def blob_of(run: Run, address: str) -> Blob | None:
    """Give the blob that a run may name by an address, as events or as clients have it."""
    path = _PATH.fullmatch(address)
    if path is not None:
        return Blob(scope_of(run), path[2]) if path[1] == run.created.run_id else None
    blob = blob_at(address)
    return blob if blob is not None and blob.scope == scope_of(run) else None


def is_blob_address(address: str) -> bool:
    """Tell whether an address can only be meant for a blob."""
    return address.startswith((BLOB_URL, "/runs/"))


def is_scope(name: str) -> bool:
    """Tell whether a name can be a scope: short, in small letters, digits and dashes."""
    return _SCOPE_NAME.fullmatch(name) is not None


def scope_of(run: Run) -> str:
    """Name the scope that a run's blobs belong to: its session's, or its own."""
    return run.created.session_id or run.created.run_id


def mentions(body: bytes, own: str) -> Iterator[Blob]:
    """Find every address in the bytes of an event of a scope, wherever in it they are.

    A path names a run and not its session: it may mean a blob of the run, or of the event's own
    scope.
    """
    for found in _MENTION.finditer(body):
        named = [found[1]] if found[1] else dict.fromkeys([found[2], own.encode()])
        for scope in named:
            yield Blob(scope.decode(), found[3].decode())
