"""What a node's runs share of the world: the log, the clock, entries, blobs, secrets and limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.eventlog.env import Env
from perdure.eventlog.log import EventLog
from perdure.runtime.blobs.store import BlobStore
from perdure.runtime.execution.limits import HostLimits
from perdure.runtime.plugins.entries import Entries
from perdure.runtime.secrets.secrets import Secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.runtime.plugins.plugin import Plugin


@dataclass(frozen=True, slots=True, kw_only=True)
class HostContext:
    """What creates, executes and reads runs is given; it holds no run itself."""

    name: str  # the host's, in the events it writes
    env: Env
    log: EventLog
    entries: Entries
    limits: HostLimits
    blobs: BlobStore
    secrets: Secrets


def host_context(
    log: EventLog,
    plugins: Mapping[str, Plugin],
    *,
    limits: HostLimits | None = None,
    blobs: BlobStore | None = None,
    secrets: Secrets | None = None,
) -> HostContext:
    """Make a context; blobs and secrets are in memory unless stated."""
    env = log.env
    return HostContext(
        name=str(env.new_id()),
        env=env,
        log=log,
        entries=Entries(plugins),
        limits=limits or HostLimits(),
        blobs=blobs or BlobStore(env),
        secrets=secrets or Secrets(env),
    )
